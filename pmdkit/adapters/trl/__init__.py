"""pmdkit's objectives in TRL 1.16: `PMDTrainer` extends GRPOTrainer, `PMDConfig` extends GRPOConfig.

TRL samples, scores, shards and steps; the advantage and the loss are those of `pmdkit.objectives`. docs/use/trl.md has
a script and says what is refused.
"""

from pmdkit.adapters.trl.config import PMDConfig
from pmdkit.adapters.trl.trainer import PMDTrainer

__all__ = ["PMDConfig", "PMDTrainer"]
