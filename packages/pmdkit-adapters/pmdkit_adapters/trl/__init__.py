"""pmdkit's objectives in TRL: `PMDTrainer` extends GRPOTrainer, `PMDConfig` extends GRPOConfig; `PMDRecorder` looks on.

TRL samples, scores, shards and steps; the advantage and the loss are those of `pmdkit.objectives`. docs/use/trainers.md
has a script and says what is refused.
"""

import trl

from pmdkit.errors import EnvironmentLacks

try:
    from pmdkit_adapters.trl.config import PMDConfig
    from pmdkit_adapters.trl.recorder import TRLRecorder as PMDRecorder
    from pmdkit_adapters.trl.trainer import PMDTrainer
except (ImportError, AttributeError) as error:
    raise EnvironmentLacks(
        f"pmdkit_adapters.trl cannot be loaded with trl {trl.__version__}: {error}; pip install trl==1.16.0"
    ) from error

__all__ = ["PMDConfig", "PMDRecorder", "PMDTrainer"]
