"""A stranger's folder runs no code, wherever one stands: no verb imports a module from the current folder.

The folder holds a module under the name of everything that Python, pmdkit and their dependencies import. Each writes a
marker when it is imported; there must be none after any command, in the folder of a run and outside. A matplotlibrc in
it is a pipe, which would block who reads it.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pmdkit.cli import VERBS, companions
from tests.nightly import mostly_nightly

TINY = str(Path(__file__).parents[1] / "llm" / "tiny.toml")
QUICK = ["schedule.steps=1", "warm_start.pass_rate=0", "evaluation.problems=4", "run.threads=1"]
SCRIPT = "import sys\nfrom pmdkit.cli import main\nsys.exit(main())\n"  # what pip installs as `pmdkit`
STANDARD = "ctypes json logging multiprocessing random resource sitecustomize socket subprocess tempfile"
OTHERS = "filelock jinja2 matplotlib numpy peft rich safetensors sympy torch tqdm transformers triton wandb yaml"
OWN = "conftest pmdkit pmdkit_adapters pmdkit_course pmdkit_lab strict_answers usercustomize"
MODULES = [*STANDARD.split(), *OTHERS.split(), *OWN.split()]

OUTSIDE = [  # {}: a new folder for what it writes
    "doctor", "objectives", "envs", "theory --p 0.1 --tau 0.05", "plan starter --gpus 1xH100", "ledger",
    "bandit needle --steps 2 --out {}", "toy modular-sum --steps 1 --out {}", "explain grpo",
    "certify grpo",
    "sweep bandit needle --over tau=0.1,0.2 --seeds 1 --jobs 2 --out {} --set steps=2",
    f"llm {TINY} --out {{}} --steps 1 --set parallel.processes=2 warm_start.pass_rate=0 evaluation.every=0",
    "reproduce --budget 2m --dry-run", "race --dry-run", "figure tab2-speed --out {}", "learn start {}",
]  # fmt: skip
OFTEN = [command for command in OUTSIDE if command.split()[0] in ("doctor", "sweep")]  # for every change; with children
INSIDE = [
    "eval . --k 1 --problems 2", "replay .", "autopsy .", "figure .", "compare .", "export . 1 {}",
    f"llm {TINY} --out . --resume --steps 2",
]  # fmt: skip


def cast_shadows(folder, marker):
    os.mkfifo(folder / "matplotlibrc")
    for name in MODULES:
        (folder / f"{name}.py").write_text(f"open({str(marker)!r}, 'a').write('{name} ')\nraise ImportError('shadow')")


def python(*arguments, at, marker):
    """Exit code of a new Python in a folder, the end of what it said, and the shadows that it imported."""
    ended = subprocess.run(
        [sys.executable, *arguments], cwd=at, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600
    )
    ran = marker.read_text() if marker.exists() else ""
    marker.unlink(missing_ok=True)
    return ended.returncode, ended.stderr[-500:], ran


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    """The command `pmdkit`, in a folder of its own."""
    script = tmp_path_factory.mktemp("bin") / "pmdkit"
    script.write_text(SCRIPT)
    return str(script)


@pytest.mark.parametrize("command", mostly_nightly(OUTSIDE, *OFTEN))
def test_no_verb_imports_from_the_folder_one_stands_in(command, script, tmp_path):
    here = tmp_path / "theirs"
    here.mkdir()
    cast_shadows(here, tmp_path / "ran")
    words = command.format(tmp_path / "new").split()
    code, said, ran = python(script, *words, at=here, marker=tmp_path / "ran")
    assert (code, ran) == (0, ""), said


@pytest.mark.parametrize("first", mostly_nightly([0, 6], 6))  # a change waits for the last, which imports most
def test_no_verb_imports_from_a_run_that_one_stands_in(first, script, call, tmp_path):
    here = tmp_path / "run"
    assert call("llm", TINY, "--out", here, "--record", "--set", *QUICK) == 0
    cast_shadows(here, tmp_path / "ran")
    for command in INSIDE[first:]:
        words = command.format(tmp_path / "new").split()
        code, said, ran = python(script, *words, at=here, marker=tmp_path / "ran")
        assert (code, ran) == (0, ""), (command, said)


def test_a_shadow_that_is_imported_leaves_its_mark(tmp_path):
    cast_shadows(tmp_path, tmp_path / "ran")
    code = "import sys\nfor name in sys.argv[1:]:\n    try: __import__(name)\n    except ImportError: pass"
    assert python("-c", code, *MODULES, at=tmp_path, marker=tmp_path / "ran")[2].split() == MODULES


def test_every_verb_is_among_the_commands():
    verbs = {command.split()[0] for command in (*OUTSIDE, *INSIDE)}
    assert verbs == {*VERBS, *companions.verbs()} - {"tour"}  # which is two minutes of bandit, toy and llm
