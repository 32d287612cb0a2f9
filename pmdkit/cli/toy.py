"""`pmdkit toy ENV`: a run of tier 2."""

from pmdkit.cli.options import RunOptions, ToyName
from pmdkit.cli.run import begin
from pmdkit.cli.signals import command_context


def toy(env: ToyName, /, *, options: RunOptions | None = None) -> None:
    """Tier 2: a small transformer on a token task, from rewards 0 and 1.

    The same objective, loop, folder and options as tier 1. --group draws responses; without it they are enumerated,
    where the task has few enough. Other options keep the spec's values. Example: pmdkit toy modular-sum --tau 0.05

    Args:
        env: a spec on the shelf (see pmdkit envs) or a .toml file.
    """
    with command_context():
        begin("toy", env, options or RunOptions())
