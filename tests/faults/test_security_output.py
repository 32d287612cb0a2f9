r"""What data and models say reaches a terminal as text: no escape, no markup, no page that runs.

Read from a real terminal's side where there is one (a pseudo-terminal), from the stream elsewhere.
"""

import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from pmdkit.envs.verifier.audit import escaped
from pmdkit.errors import printable
from pmdkit.observe.console import LiveDisplay, LogDisplay, SilentDisplay

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
    from pmdkit.learn.exercise import AnswerVerdict
    from pmdkit.reproduce.report import prose

    evil = "<script>x()</script> *b* \"'&"
    assert "<script" not in AnswerVerdict(False, f"It raised ValueError: {evil}.")._repr_html_()
    assert "<script" not in str(prose(evil))
