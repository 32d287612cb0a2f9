r"""Text of data, models and names: no escape, no markup, no page that runs, and nothing outside of where runs go.

Read from a real terminal's side where there is one (a pseudo-terminal), from the stream elsewhere. Specs, objectives,
folders and stored runs may be called anything.
"""

import io
import json
import os
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from pmdkit.errors import UsageError, printable
from pmdkit.observe.console import LiveDisplay, LogDisplay, SilentDisplay
from pmdkit.specs import BanditSpec, from_record
from pmdkit.sweeps.grid import expand
from pmdkit.training import plan, train
from strict_answers.audit import escaped

from .bad_input import run
from .harness import scaled

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\x08\x0b\x0c\u202e\u2066\u2028\ud800\x7f\x00[red]no[/red][/]\r"
COLOURS = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
"What rich itself sends: colours, and the moves that redraw its table."


def raw(text):
    """Characters that steer a terminal, and that no line of ours holds."""
    return {char for char in text if not (char.isprintable() or char in "\n\t")}


def test_text_is_shown_and_not_obeyed():
    shown = printable(EVIL + "a\tb\n" + "café 数 ✓ a\u00a0b")
    assert raw(shown) <= {"\u00a0"}
    assert shown.startswith("\\x1b]0;owned\\x07\\x1b[2J\\x9b31m")
    assert "\\u202e" in shown
    assert "\\ud800" in shown
    assert shown.endswith("a\tb\ncafé 数 ✓ a\u00a0b")
    shown.encode()  # a lone surrogate could not be written at all
    assert raw(escaped(EVIL)) == set()


@pytest.mark.parametrize("made", [SilentDisplay, LogDisplay])
def test_lines_of_a_log(made, capsys):
    display = made()
    for say in (display.warn, display.note):
        say(f"problem {EVIL}")
    told = capsys.readouterr().err
    assert raw(told) == set()
    assert "\\x1b[2J" in told
    assert "[red]no[/red]" in told


def test_lines_of_a_live_screen():
    """On a terminal rich colours its own words; the text of others stays as it is, its markup too."""
    stream = io.StringIO()
    display = LiveDisplay(Console(file=stream, force_terminal=True, width=200))
    for say in (display.warn, display.note):
        say(f"problem {EVIL}")
    display.work(f"reading {EVIL}", 1, 2, EVIL)
    display.end()
    told = COLOURS.sub("", stream.getvalue()).replace("\r", "")
    assert raw(told) == set()
    assert told.count("[red]no[/red][/]") >= 2
    assert "\\x1b[2J" in told


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A recorded run of a language model whose tokenizer then writes terminal commands; responses are noise."""
    from pmdkit import train

    folder = tmp_path_factory.mktemp("recorded")
    tiny = Path(__file__).parents[1] / "llm" / "tiny.toml"
    options = {"evaluation.every": 0, "warm_start.pass_rate": 0, "run.record": 1}
    run = train("pmd-mean", "llm", str(tiny), out=folder / "run", steps=1, options=options)
    tokenizer = next((folder / "run").glob("checkpoints/step-*/tokenizer.json"))
    told = json.loads(tokenizer.read_text())  # every token of it is a terminal command from here on
    told["model"]["vocab"] = {f"{EVIL[:12]}{n}": n for n in told["model"]["vocab"].values()}
    told["model"]["merges"], told["added_tokens"] = [], []
    told["decoder"] = None
    tokenizer.write_text(json.dumps(told))
    return run.path


@pytest.mark.parametrize("more", [[], ["--row", "3"]], ids=["step", "row"])
def test_replay_shows_what_a_model_wrote(more, recorded, call, capsys):
    assert call("replay", recorded, *more) == 0
    told = capsys.readouterr().out
    assert raw(told) == set()
    assert "\\x1b]0;owned" in told.replace("\n", "")


def test_replay_as_json_holds_the_text_itself(recorded, call, capsys):
    assert call("replay", recorded, "--row", "3", "--json") == 0
    told = capsys.readouterr().out
    assert raw(told) == set()
    assert "\x1b]0;owned" in json.loads(told)["response_text"]


def test_an_error_shows_the_row_of_data_that_it_names(call, tmp_path, capsys):
    """Whatever verb fails, its one line is text: here a file of problems with a command in its keys."""
    (tmp_path / "rows.jsonl").write_text(json.dumps({f"prob{EVIL[:20]}": "x", "answer": "1"}) + "\n")
    (tmp_path / "mine.toml").write_text(
        '[env]\nkind = "file"\npath = "rows.jsonl"\n[model]\nbuild = "starter"\n[objective]\nname = "pmd-mean"\n'
        "[schedule]\nsteps = 1\n"
    )
    code = call("llm", "mine.toml", "--out", "run")
    told = capsys.readouterr().err
    assert code == 2
    assert raw(told) == set()
    assert len(told.splitlines()) == 1


def test_pages_are_escaped(tmp_path):
    """The report of a reproduction and a verdict in a notebook: text of others is no tag."""
    from pmdkit_course.exercises import AnswerVerdict
    from pmdkit_lab.reproduce.report import prose

    evil = "<script>x()</script> *b* \"'&"
    assert "<script" not in AnswerVerdict(False, f"It raised ValueError: {evil}.")._repr_html_()
    assert "<script" not in str(prose(evil))


# Names.

SPEC = '[env]\nkind = "needle"\narms = 4\n[objective]\nname = "pmd-mean"\n[schedule]\nsteps = 1\n'
OBJECTIVE = """\
from dataclasses import dataclass
from pmdkit.objectives import PMDMean

@dataclass(frozen=True)
class Mine(PMDMean):
    pass
"""
NAMES = [
    "..", ".", "...", "~", "~root", "-", "-rf", "--out", "CON", "NUL", "aux.txt", "a.", "a ", " a", "a..b", ".hidden",
    "$HOME", "a;b", "a|b", "`id`", "%2e%2e%2f", "..%2f", "\u202e..", "a\u2215b", "\uff0e\uff0e", "\u4e1c\u4eac",
    "\u03c0", "e\u0301", "a\\..\\b", "C:\\x", "\\\\host\\share", "x" * 200, "\u00e9" * 100, "*", "?", "[a]", "{a,b}",
    "a\tb", "a\nb", "a\x1b[31mb", "a\x7f",
]  # fmt: skip
REPEATABLE = {"deadline": None, "derandomize": True, "database": None, "suppress_health_check": list(HealthCheck)}


def tree(folder: Path) -> set[str]:
    """Everything below a folder, links not followed, without what Python keeps of modules."""
    paths = {Path(top, name) for top, folders, names in os.walk(folder) for name in folders + names}
    return {path.relative_to(folder).as_posix() for path in paths if "__pycache__" not in path.parts}


def below(made: set[str], root: Path, folder: Path) -> bool:
    """Whether all that was made in a folder is one thing in it, or below that."""
    inside = root.relative_to(folder).as_posix()
    return all(path == inside or path.startswith(inside + "/") for path in made)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A place deep enough to climb out of, with an objective of one's own beside it."""
    here = tmp_path / "a" / "b" / "c" / "work"
    here.mkdir(parents=True)
    (here.parent / "mine.py").write_text(OBJECTIVE)
    monkeypatch.chdir(here)
    return here


@pytest.mark.parametrize("name", NAMES)
def test_a_spec_may_be_called_anything_and_its_run_stays_below_runs(name, place, tmp_path):
    (place / f"{name}.toml").write_text(SPEC)
    before = tree(tmp_path)
    try:
        finished = train(env=f"./{name}.toml")
    except UsageError:
        assert not name.isprintable() or "\\" in name or name in (".", "..")
        assert tree(tmp_path) == before
        return
    assert finished.path.parent == Path("runs")
    assert finished.path.name.isascii()
    assert below(tree(tmp_path) - before, place / "runs", tmp_path)
    assert len(list((place / "runs").iterdir())) == 1


@pytest.mark.parametrize("path", ["../mine.py", "UP/TMP/a/b/c/mine.py", "/TMP/a/b/c/mine.py", "x/../../mine.py"])
def test_an_objective_in_any_file_leaves_the_run_below_runs(path, place, tmp_path):
    (place / "x").mkdir()
    path = path.replace("UP", "../" * len(place.parts)).replace("TMP", str(tmp_path).lstrip("/"))
    before = tree(tmp_path)
    train(f"{path}:Mine", steps=1)
    assert below(tree(tmp_path) - before, place / "runs", tmp_path)
    assert len(list((place / "runs").iterdir())) == 1


@pytest.mark.parametrize("name", ["../../x", "/etc/x", "..", "a/b", "a\\b", "a\0b", "a\nb", "", "x" * 300])
def test_the_name_in_a_stored_run_is_no_way_out(name, place):
    """A run folder from elsewhere is read as data."""
    record = BanditSpec.read("needle").record()
    assert from_record(record).name == "needle"
    with pytest.raises(ValueError, match="the name of a spec is"):
        from_record({**record, "name": name})
    (place / "theirs").mkdir()
    (place / "theirs" / "config.json").write_text(json.dumps({**record, "name": name}))
    for arguments in (["bandit", "needle", "--resume", "--out", "theirs"], ["eval", "theirs"]):
        before = tree(place)
        outcome = run(*arguments)
        assert outcome.code in (2, 5), outcome
        assert outcome.err.count("\n") == 1
        assert tree(place) == before


@pytest.mark.parametrize("out", ["", "x" * 300, "a/" + "x" * 300, "a\nb", "a\x1b[31m", "\udcff", "a\tb"])
def test_a_folder_that_cannot_be_named_is_refused(out, place, tmp_path):
    before = tree(tmp_path)
    for more in ([], ["--resume"]):
        outcome = run("bandit", "needle", "--steps", "1", f"--out={out}", *more)
        assert outcome.code == 2, outcome
        assert outcome.err.count("\n") == 1
    assert tree(tmp_path) == before


@pytest.mark.parametrize("out", ["-x", "~", "CON", "a.", "..a", "\u6771\u4eac", "a b", "$HOME", "deep/er/still"])
def test_a_folder_is_what_it_is_called(out, place, tmp_path):
    """No expansion, no translation: the folder of that name, below where one is."""
    before = tree(tmp_path)
    train(steps=1, out=out)
    assert (place / out / "summary.json").is_file()
    assert below(tree(tmp_path) - before, place / Path(out).parts[0], tmp_path)


@pytest.mark.parametrize("inside", ["checkpoints", "figures", "rollouts", "config.json"])
def test_a_link_out_of_a_run_is_not_followed(inside, place, tmp_path):
    """Not on a resume, and not where a folder is to be filled that holds the link alone."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (place / "run").mkdir()
    (place / "run" / inside).symlink_to(outside if inside != "config.json" else outside / "config.json")
    outcome = run("bandit", "needle", "--steps", "1", "--resume", "--out", "run")
    assert outcome.code == 2, outcome
    assert run("bandit", "needle", "--steps", "1", "--out", "run").code == 2
    train(steps=1, out="finished")
    (place / "finished" / "evaluations").symlink_to(outside)
    outcome = run("bandit", "needle", "--steps", "2", "--resume", "--out", "finished")
    assert outcome.code == 2
    assert "is a link out of the run's folder" in outcome.err
    assert not list(outside.iterdir())


any_name = st.one_of(st.sampled_from(NAMES), st.text(min_size=1, max_size=40))
any_path = st.lists(st.one_of(st.sampled_from(["..", ".", "~", "/", ""]), any_name), min_size=1, max_size=5).map(
    "/".join
)


@settings(max_examples=scaled(200), **REPEATABLE)
@given(any_path)
def test_the_folders_of_runs_and_sweeps_have_plain_names(path):
    """A label and the name of a point are one part of a path, of characters that every system takes."""
    spec = BanditSpec.read("needle").model_copy(update={"objective": {"name": f"{path}:Mine"}})
    points = expand("bandit", path, {"objective.name": [f"{path}:Mine", "rloo"]}, [0], {"objective.baseline": path})
    for name in (spec.label, *(point.name for point in points)):
        assert len(name) <= 140
        assert set(name) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
        assert (Path("/root/runs") / f"{name}-001").resolve().parent == Path("/root/runs")
        assert (Path("/root/runs") / name).resolve().parent == Path("/root/runs")


@settings(max_examples=scaled(100), **REPEATABLE)
@given(any_path)
def test_no_path_is_taken_for_the_name_of_a_spec(path):
    with pytest.raises(UsageError, match=r"unknown|does not exist|is not a file"):
        plan("bandit", path, {})
    with pytest.raises(UsageError, match=r"unknown|does not exist|is not a file"):
        plan("bandit", path + ".toml", {})
