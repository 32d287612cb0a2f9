"""`pmdkit bandit ENV`: a run of tier 1."""

from pmdkit.cli.options import BanditName, RunOptions
from pmdkit.cli.run import begin
from pmdkit.cli.signals import command_context


def bandit(env: BanditName, /, *, options: RunOptions | None = None) -> None:
    """Tier 1: a table of logits on a contextual bandit.

    Without --group the update is the population solution, by Newton if logits share features, or a gradient step on
    the full expectation if no closed form is known. With --group G it takes gradient steps on G draws per context.

    Args:
        env: a spec on the shelf (see pmdkit envs) or a .toml file.
    """
    with command_context():
        begin("bandit", env, options or RunOptions())
