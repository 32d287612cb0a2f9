"""One table of exit codes: a verb, what is wrong with it, and the value or the near name that the line must hold."""

import json
import os
from pathlib import Path

import pytest

from pmdkit import companions, extras, train
from pmdkit.plugins import function_from_path

TINY = str(Path(__file__).parents[1] / "llm" / "tiny.toml")
MISTAKES = [
    ("bandti needle", 2, "'bandit'"),
    ("bandit nedle", 2, "'needle'"),
    ("bandit needle --stepz 2", 2, "--steps"),
    ("bandit needle --objective pmd-meen", 2, "'pmd-mean'"),
    ("bandit needle --objective mine.py:MyLoss", 2, "mine.py"),
    ("bandit needle --objective rloo --tau 0.1", 2, "objective.tau"),
    ("bandit needle --tau 0", 2, "0.0"),
    ("bandit needle --steps -3", 2, "-3"),
    ("bandit needle --group 1", 2, ""),
    ("bandit needle --ministeps 2", 2, ""),
    ("bandit needle --set arms", 2, "key=value"),
    ("bandit needle --set objective.taw=0.1", 2, "'objective.tau'"),
    ("bandit needle --set steps=3 steps=4", 2, "3 and 4"),
    ("bandit shared-features --set update=exact", 2, ""),
    ("bandit needle --objective grpo --set update=exact", 2, ""),
    (f"bandit needle --set run.threads={(os.cpu_count() or 1) + 1}", 2, "run.threads"),
    ("bandit needle -- --steps 3", 2, "before"),
    ("bandit needle --resume", 2, "--out"),
    ("bandit needle --out file", 2, "file"),
    ("bandit needle --out folder", 2, "folder"),
    ("bandit needle --out file/run", 3, "file/run"),
    ("bandit needle --out locked/run", 3, "locked/run"),
    ("bandit needle --prompts 2 --ministeps 2 --set update=gradient optimizer=sgd --lr 1e200", 6, "inf"),
    ("toy modular-sum --set model.dimension=30", 2, "model.dimension"),
    ("toy modular-sum --set model.path=nowhere", 2, "nowhere"),
    ("toy modular-sum --set update=exact", 2, "gradient"),
    ("toy modular-sum --set warm_start.pass_rate=1", 2, "pass_rate"),
    ("toy sort --set group=null", 2, "--group"),
    ("llm", 2, "--model"),
    ("llm --model x", 2, "--data"),
    ("llm starter --set trust_remote_code=true", 2, "trust_remote_code"),
    (f"llm {TINY} --set model.path=./nowhere model.build=null", 2, "./nowhere"),
    ("llm starter --set parallel.processes=4000", 3, "4000"),
    ("llm starter --save-recipe file", 2, "file"),
    ("eval nowhere", 2, "nowhere"),
    ("eval graded", 2, ""),
    ("eval run --k 5000", 2, "4096"),
    ("eval run --temperature 1", 2, "--temperature"),
    ("eval run --resume", 2, "--resume"),
    ("sweep bandit needle --over tau", 2, "key=v1,v2"),
    ("sweep bandit needle --over tau=1 --set tau=2", 2, "objective.tau"),
    ("sweep bandit needle --seeds 0", 2, "0"),
    ("sweep bandit needle --launcher slrum", 2, "'slurm'"),
    ("compare run --metric pass_rate", 2, "pass_rate_last"),
    ("compare run --csv file", 2, "file"),
    ("figure nowhere", 2, "nowhere"),
    ("export run one out", 2, "one"),
    ("export starter folder", 2, "folder"),
    ("theory --p 2", 2, "2.0"),
    ("tour --objective grpo", 2, "grpo"),
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two finished runs, which no test changes."""
    place = tmp_path_factory.mktemp("runs")
    for name, env in (("run", "needle"), ("graded", "graded")):
        train("pmd-mean", "bandit", env, steps=1, out=place / name)
    return place


@pytest.mark.parametrize(("words", "code", "held"), MISTAKES, ids=[words[:60] for words, *_ in MISTAKES])
def test_a_mistake_is_one_line_and_its_exit_code(words, code, held, call, runs, tmp_path, capsys):
    Path("file").write_text("keep")
    Path("folder").mkdir()
    Path("folder/keep").write_text("keep")
    Path("locked").mkdir(mode=0o500)
    for name in ("run", "graded"):
        os.symlink(runs / name, name)
    if "locked" in words and os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    before = {path.name for path in tmp_path.iterdir()}
    assert call(*words.split()) == code
    told = capsys.readouterr()
    assert told.out == ""
    error = told.err.splitlines()[-1]
    assert error.startswith("pmdkit: error: ")
    assert told.err.count("pmdkit: error: ") == 1
    assert held in error
    assert Path("file").read_text() == "keep"
    assert [path.name for path in Path("folder").iterdir()] == ["keep"]
    if code == 2:
        assert len(told.err.splitlines()) == 1
        assert {path.name for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("verb", sorted(companions.HOMES))
def test_a_verb_of_a_missing_companion_names_the_package_and_how_to_install_it(verb, call, capsys, monkeypatch):
    monkeypatch.setattr(companions, "entry_points", lambda group: [])
    assert call(*verb.split(), "fig2") == 3
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"pip install -e {extras.CHECKOUT / 'packages' / companions.HOMES[verb]}" in error


def test_every_exit_code_stands_on_its_page():
    from pmdkit import errors

    page = (Path(__file__).parents[2] / "docs" / "use" / "command-line.md").read_text()
    codes = {kind.exit_code for kind in vars(errors).values() if isinstance(kind, type) and hasattr(kind, "exit_code")}
    for code in codes | {0}:
        assert f"| {code} |" in page


def test_slurm_without_srun_is_an_environment_that_lacks_it(call, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert call("sweep", "bandit", "needle", "--over", "tau=0.05,0.5", "--launcher", "slurm", "--out", "sweep") == 3
    assert "srun" in capsys.readouterr().err.splitlines()[-1]


# A ValueError is a refusal, exit 2, where a `raise` of ours or of the user's own file said so, else a bug.

SLIPS = {
    "operation": "import numpy\nnumpy.zeros(2) + numpy.zeros(3)",
    "library": "import json\njson.loads('{')",
    "conversion": "int('x')",
}


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("kind", ["refusal of ours", "refusal of the user", *SLIPS])
def test_only_a_deliberate_value_error_is_wrong_usage(kind, debug, call, tmp_path, capsys, monkeypatch):
    """Ours: pmdkit.envs refuses an option. --debug adds the traceback and keeps the code."""
    body = "raise ValueError('not such a value')" if kind == "refusal of the user" else SLIPS.get(kind, "pass")
    lines = "\n    ".join(body.splitlines())
    (tmp_path / "own.py").write_text(f"def broken(*given, **options):\n    {lines}\n")
    if kind != "refusal of ours":
        own = function_from_path(str(tmp_path / "own.py") + ":broken", "anything")
        monkeypatch.setattr("pmdkit.start.start", own)
    words = ["bandit", "needle", "--set", "env.arms=1", *(["--debug"] if debug else [])]
    assert call(*words) == (2 if kind.startswith("refusal") else 1)
    told = capsys.readouterr().err
    assert told.splitlines()[-1].startswith("pmdkit: error: ")
    assert ("a bug, most likely" in told) == (kind in SLIPS)
    assert told.startswith("Traceback") == debug


def test_dry_run_starts_nothing(call, tmp_path, capsys):
    assert call("bandit", "needle", "--group", 8, "--dry-run", "--out", tmp_path / "run") == 0
    assert json.loads(capsys.readouterr().out)["schedule"]["update"] == "gradient"
    assert not (tmp_path / "run").exists()
