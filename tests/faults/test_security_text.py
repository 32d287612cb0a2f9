"""Text and names of others: shown, not obeyed, and no way out of the folder of a run."""

import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from pmdkit import train
from pmdkit.console import LiveDisplay, LogDisplay
from pmdkit.errors import UsageError, printable
from pmdkit.fit import Display
from pmdkit.specs import BanditSpec

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\x08\x0b\x0c\u202e\u2066\u2028\ud800\x7f\x00[red]no[/red][/]\r"
COLOURS = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
"What rich itself sends: colours, and the moves that redraw its table."


def raw(text):
    """Characters that steer a terminal, and that no line of ours holds."""
    return {char for char in text if not (char.isprintable() or char in "\n\t")}


def test_text_is_shown_and_not_obeyed(capsys):
    """In a line of a log, and on a live screen, where rich's own markup in it is text too."""
    shown = printable(EVIL + "a\tb\n" + "café 数 ✓ b")
    assert raw(shown) == set()
    assert shown.endswith("a\tb\ncafé 数 ✓ b")
    shown.encode()  # a lone surrogate could not be written at all
    stream = io.StringIO()
    live = LiveDisplay(Console(file=stream, force_terminal=True, width=200))
    for display in (Display(), LogDisplay(), live):
        display.warn(f"problem {EVIL}")
        display.note(f"problem {EVIL}")
    live.work(f"reading {EVIL}", 1, 2, EVIL)
    live.end()
    for told in (capsys.readouterr().err, COLOURS.sub("", stream.getvalue()).replace("\r", "")):
        assert raw(told) == set()
        assert told.count("[red]no[/red]") >= 2


SPEC = '[env]\nkind = "needle"\narms = 4\n[objective]\nname = "pmd-mean"\n[schedule]\nsteps = 1\n'
NAMES = [
    "..", "~", "-rf", "a ", "$HOME", "`id`", "\u202e..", "\uff0e\uff0e", "\u4e1c\u4eac", "a\\..\\b", "x" * 200,
    "a\x1b[31mb",
]  # fmt: skip


def tree(folder: Path) -> set[str]:
    """Everything below a folder, without what Python keeps of modules."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if "__pycache__" not in path.parts}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A place deep enough to climb out of."""
    here = tmp_path / "a" / "b" / "work"
    here.mkdir(parents=True)
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
    made = tree(tmp_path) - before
    assert all(path == "a/b/work/runs" or path.startswith("a/b/work/runs/") for path in made)


@pytest.mark.parametrize("name", ["../../x", "/etc/x", "..", "a/b", "a\\b", "a\0b", "", "x" * 300])
def test_the_name_in_a_stored_run_is_no_way_out(name, place, call):
    """A run folder from elsewhere is read as data."""
    record = BanditSpec.read("needle").record()
    (place / "theirs").mkdir()
    (place / "theirs" / "config.json").write_text(json.dumps({**record, "name": name}))
    before = tree(place)
    for arguments in (["bandit", "needle", "--resume", "--out", "theirs"], ["eval", "theirs"]):
        assert call(*arguments) in (2, 5)
        assert tree(place) == before


@pytest.mark.parametrize("out", ["", "x" * 300, "a\nb", "a\x1b[31m", "a\tb"])
def test_a_folder_that_cannot_be_named_is_refused(out, place, tmp_path, call):
    before = tree(tmp_path)
    for more in ([], ["--resume"]):
        assert call("bandit", "needle", "--steps", "1", f"--out={out}", *more) == 2
    assert tree(tmp_path) == before
