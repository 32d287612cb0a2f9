"""`pmdkit bandit ENV`: a run of tier 1."""

from pmdkit.cli.options import BanditName, RunOptions
from pmdkit.cli.run import begin
from pmdkit.cli.signals import command_context


def bandit(env: BanditName, /, *, options: RunOptions | None = None) -> None:
    """Tier 1: a table of logits on a contextual bandit.

    Without --group the update is exact: the population solution in closed form (--set update=regression minimises
    the full expectation by Newton instead). With --group G it learns from G draws per context by gradient steps.

    Args:
        env: a spec on the shelf (see pmdkit envs) or a .toml file.
    """
    with command_context():
        begin("bandit", env, options or RunOptions())
