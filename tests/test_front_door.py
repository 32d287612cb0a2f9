"""The front door is light: help, import and an exact solve load no torch; a wheel or a checkout, the shelf is found."""

import subprocess
import sys

import pytest

HELP = """
import contextlib, io, pmdkit.cli
with contextlib.redirect_stdout(io.StringIO()):
    pmdkit.cli.make_app()({}, exit_on_error=False, result_action="return_value")
"""
HEAVY = {"torch", "transformers", "vllm", "accelerate", "matplotlib"}


def modules_after(code: str) -> set[str]:
    """Names of the top-level modules that a fresh interpreter holds after `code`."""
    script = f"import sys\n{code}\nprint(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    "code",
    [
        "import pmdkit",
        "import pmdkit.cli; pmdkit.cli.make_app()",
        HELP.format("['--help']"),
        HELP.format("['bandit', '--help']"),
        "import numpy as n; from pmdkit import theory; theory.pmd_mean(n.ones(4) / 4, n.eye(4)[0], 0.1)",
        "import pmdkit.envs as e; e.make({'kind': 'needle'})",
    ],
)
def test_no_heavy_import(code):
    assert not modules_after(code) & HEAVY


def test_a_bandit_run_needs_no_model_library():
    code = "from pmdkit import train; train(steps=1, env='needle', out='run')"
    assert not modules_after(code) & (HEAVY - {"torch", "matplotlib"})


def test_public_names_are_there():
    import pmdkit

    for name in pmdkit.__all__:
        assert getattr(pmdkit, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = pmdkit.trian
