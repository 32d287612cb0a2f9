"""`pmdkit bandit ENV`: solve a contextual bandit exactly, by regression, or from draws."""

from pmdkit.cli.options import RunOptions


def bandit(env: str, /, *, options: RunOptions | None = None) -> None:
    """Tier 1: a table of logits on a contextual bandit.

    Without --group the update is exact: the population solution in closed form (--set update=regression minimises
    the full expectation by Newton instead). With --group G it learns from G draws per context by gradient steps.

    Args:
        env: a spec on the shelf (see pmdkit envs) or a .toml file.
    """
    from pmdkit.cli.start import start

    start("bandit", env, options or RunOptions())
