"""Hostile files: every bad row is named by its number and its reason, or dropped and counted; nothing starts before."""

import json

import pytest

from pmdkit.envs.math.file import MathFile
from pmdkit.errors import UsageError

GOOD = {"id": "a", "problem": "What is 1 + 1?", "answer": "2"}


def chat(*roles, content="Why?"):
    return json.dumps({"prompt": [{"role": role, "content": content} for role in roles], "answer": "1"}).encode()


def row(**changes):
    return json.dumps(
        {name: value for name, value in (GOOD | {"id": "b"} | changes).items() if value != "gone"}
    ).encode()


BAD = {
    "not UTF-8 at byte 14": b'{"problem": "\xff", "answer": "1"}',
    "not JSON": b'{"problem": ',
    "the line is a list": b"[1, 2]",
    "the problem is missing": row(problem="gone"),
    "the problem is missing ": row(problem=None),
    "the problem is a int": row(problem=3),
    "the problem is a dict": row(problem={"text": "Why?"}),
    "the problem is empty": row(problem=" \n\t "),
    "the problem holds a NUL": row(problem="a\0b"),
    "half a surrogate pair": row(problem="a\ud83d"),
    "longer than 100000": row(problem="x" * 100_001),
    "the answer is missing": row(answer="gone"),
    "the answer is missing ": row(answer=None),
    "the answer is empty": row(answer=" "),
    "the answer is true or false": row(answer=True),
    "the answer is a list": row(answer=["2"]),
    "the answer is not a finite number": row(answer=float("nan")),
    "float too large": row(answer=1.0526315789473685e17),
    "the answer holds a NUL": row(answer="2\0"),
    "braces of the last": row(answer="so \\boxed{\\frac{1}{2}"),
    "the id is a list": row(id=["b"]),
    "id 'a' is that of row 1": row(id="a", answer="3"),
    "has a part of DAPO's wording, but not its last": row(
        problem="Solve the following math problem step by step. The last line of your response should be of the form "
        "Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\nWhat is 1 + 1?"
    ),
}


@pytest.mark.parametrize(("reason", "line"), BAD.items())
def test_a_bad_row_is_named_or_dropped(tmp_path, reason, line):
    file = tmp_path / "mine.jsonl"
    file.write_bytes(json.dumps(GOOD).encode() + b"\n\n" + line + b"\n")
    with pytest.raises(UsageError, match=r"mine.jsonl has 1 bad row of 2: row 3: ") as error:
        MathFile(str(file)).build()
    assert reason.strip() in str(error.value)
    assert "drop_bad_rows" in str(error.value)
    kept = MathFile(str(file), drop_bad_rows=True).build()
    assert [kept.problem(int(i)).id for i in kept.train] == ["a"]
    assert sum(count for name, count in kept.counts.items() if name.startswith("dropped: ")) == 1


CHATS = {
    "has 0 user messages": chat("system"),
    "has 2 user messages": chat("user", "user"),
    "neither the user's nor the system's": chat("user", "assistant"),
    "not of chat messages": json.dumps({"prompt": ["Why?"], "answer": "1"}).encode(),
    "the problem is a list": chat("user", content=[{"type": "image"}]),
}


@pytest.mark.parametrize(("reason", "line"), CHATS.items())
def test_a_bad_chat_is_named(tmp_path, reason, line):
    file = tmp_path / "mine.jsonl"
    file.write_bytes(chat("system", "user") + b"\n" + line)
    with pytest.raises(UsageError, match="row 2: .*" + reason):
        MathFile(str(file)).build()


def test_many_bad_rows_are_counted_and_the_first_shown(tmp_path):
    file = tmp_path / "mine.jsonl"
    file.write_bytes(b"\n".join([json.dumps(GOOD).encode(), *[b"{"] * 7]))
    with pytest.raises(UsageError, match=r"7 bad rows of 8: row 2: .*row 6: [^;]*; and 2 more"):
        MathFile(str(file)).build()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b"", "is empty"),
        ("a.jsonl", b"\n\n", "holds no problem"),
        ("a.jsonl", b"{\n", "row 1: the line is not JSON"),
        ("a.jsonl", '{"problem": "?"}'.encode("utf-16"), "UTF-16"),
        ("a.json", b'"text"', "holds a str; expected a list"),
        ("a.json", b"\xff", "not UTF-8"),
        ("a.parquet", b"PAR0", "not a Parquet file"),
        ("a.pkl", b"x", "ends in '.pkl'"),
        ("a.jsonl", b'{"text": "Why?", "answer": 1}', "no column for the problem.*found text, answer"),
        ("a.jsonl", b'{"problem": "Why?", "n": {"x": 1}}', "no column for the answer.*found problem, n, n.x"),
    ],
)
def test_a_file_that_is_none_is_told(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=message):
        MathFile(str(tmp_path / name)).build()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "nowhere.jsonl"}, "does not exist"),
        ({"path": "."}, "is a folder"),
        ({"path": ""}, "expected a file"),
        ({"path": "a", "held_out": -1}, "env.held_out is -1"),
        ({"path": "a", "held_out": True}, "env.held_out is True"),
        ({"path": "a", "limit": 0}, "env.limit is 0"),
        ({"path": "a", "drop_bad_rows": "yes"}, "env.drop_bad_rows is 'yes'"),
    ],
)
def test_bad_options_are_told(options, message):
    with pytest.raises(ValueError, match=message):
        MathFile(**options).build()
