"""`pmdkit toy ENV`: train a small transformer on a token task."""

from pmdkit.cli.options import RunOptions


def toy(env: str, /, *, options: RunOptions | None = None) -> None:
    """Tier 2: a small transformer on a token task, from rewards 0 and 1.

    The same objective, loop, folder and options as tier 1. --group draws responses; without it they are enumerated,
    where the task has few enough.

    Args:
        env: a spec on the shelf (see pmdkit envs) or a .toml file.
    """
    from pmdkit.cli.start import start

    start("toy", env, options or RunOptions())
