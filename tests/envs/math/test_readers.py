"""Layouts and formats read the same; copies are merged; held-out problems depend on texts alone."""

import json
import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from pmdkit.envs.math import MATH_KINDS, make_math
from pmdkit.envs.math.datasets import GSM8K, HendrycksMath
from pmdkit.envs.math.problem import Problem, collect, leaks
from pmdkit.envs.math.readers import AFTER, BEFORE, MathFile, final_answer
from pmdkit.errors import EnvironmentLacks, UsageError

ROOT = Path(__file__).parents[3]
PLAIN = [{"id": str(i), "problem": f"What is ${i} + {i}$?", "answer": str(2 * i)} for i in range(20)]
VERL = [
    {
        "prompt": [{"role": "user", "content": BEFORE + row["problem"] + AFTER}],
        "reward_model": {"ground_truth": row["answer"], "style": "rule"},
        "extra_info": {"index": row["id"]},
    }
    for row in PLAIN
]


def write(path, rows):
    if path.suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows), encoding="utf-8-sig")
    else:
        path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8-sig")
    return str(path)


def content(problems, numbers=None):
    numbers = problems.train if numbers is None else numbers
    return [(p.id, p.problem, p.answer) for p in (problems.problem(int(i)) for i in numbers)]


@pytest.mark.slow
@pytest.mark.parametrize("rows", [PLAIN, VERL], ids=["plain", "verl"])
@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet"])
def test_layouts_and_formats_read_the_same(tmp_path, rows, suffix):
    """With and without a byte order mark, and with DAPO's wording taken off so that the template is not doubled."""
    problems = MathFile(write(tmp_path / f"a{suffix}", rows)).build()
    assert content(problems) == [(row["id"], row["problem"], row["answer"]) for row in PLAIN]
    assert problems.train.dtype == np.int64
    assert problems.counts == {"read: rows": 20}


def test_named_and_nested_columns(tmp_path):
    rows = [{"q": {"text": "Why?"}, "a": 42, "problem": "not this", "answer": "nor this", "key": 7}]
    problems = MathFile(write(tmp_path / "a.jsonl", rows), problem="q.text", answer="a", id="key").build()
    assert content(problems) == [("7", "Why?", "42")]
    with pytest.raises(UsageError, match=r"no column for the id; expected nokey, found q, q.text"):
        MathFile(str(tmp_path / "a.jsonl"), id="nokey").build()


def test_rows_without_ids_are_numbered_by_row(tmp_path):
    rows = [{"question": "One?", "answer": 1.0}, {"question": "Two?", "answer": 0.5}]
    assert content(MathFile(write(tmp_path / "a.jsonl", rows)).build()) == [
        ("a-00001", "One?", "1"),
        ("a-00002", "Two?", "0.5"),
    ]


@pytest.mark.parametrize(
    ("solution", "answer"),
    [
        ("1 + 1 = <<1+1=2>>2\n#### 1,234", "1,234"),
        ("#### 1\nno: \n####  -3 \n", "-3"),
        (r"first \boxed{1}, then $\boxed{\frac{1}{2}}$.", r"\frac{1}{2}"),
        (r"\fbox{7}", "7"),
        (r"\boxed 5$.", "5"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxedtext{3}", None),
        ("Tag #### 3", None),
        ("nothing", None),
    ],
)
def test_final_answers(solution, answer):
    assert final_answer(solution) == answer


def test_gsm8k_and_math(tmp_path):
    path = write(tmp_path / "a.jsonl", [{"question": "Ducks?", "answer": "16 - 7 = 9\n#### 18"}])
    assert content(GSM8K(path).build())[0][2] == "18"
    path = write(tmp_path / "b.jsonl", [{"problem": "x?", "solution": r"Thus \boxed{x^2}.", "type": "Algebra"}])
    assert content(HendrycksMath(path).build())[0][2] == "x^2"
    path = write(tmp_path / "c.jsonl", [{"problem": "x?", "solution": "Thus x."}])
    with pytest.raises(UsageError, match=r"row 1: the solution has no \\boxed"):
        HendrycksMath(path).build()


def test_copies_are_merged_and_conflicts_dropped(tmp_path):
    rows = [
        {"id": "a", "problem": "One  way?", "answer": "1"}, {"id": "a", "problem": "One  way?", "answer": "1"},
        {"id": "b", "problem": "One\nway?", "answer": "1"}, {"id": "c", "problem": "Which?", "answer": "1"},
        {"id": "d", "problem": " Which?", "answer": "2"}, {"id": "e", "problem": "Which?", "answer": "1"},
        {"id": "f", "problem": "x - 3", "answer": "1"}, {"id": "g", "problem": "x + 3", "answer": "2"},
    ]  # fmt: skip
    problems = MathFile(write(tmp_path / "a.jsonl", rows)).build()
    assert [id for id, _, _ in content(problems)] == ["a", "f", "g"]
    assert problems.counts == {
        "read: rows": 8,
        "merged: same id and content": 1,
        "merged: same problem": 1,
        "dropped: conflicting answers": 3,
    }


def test_held_out_problems_depend_on_their_texts_alone(tmp_path):
    one = MathFile(write(tmp_path / "a.jsonl", PLAIN), held_out=5).build()
    two = MathFile(write(tmp_path / "b.jsonl", PLAIN[::-1]), held_out=5).build()
    assert len(one.held_out) == 5
    assert sorted(np.concatenate([one.train, one.held_out])) == list(range(20))
    assert set(content(one, one.held_out)) == set(content(two, two.held_out))
    everything = MathFile(str(tmp_path / "a.jsonl"), held_out="all").build()
    assert (len(everything.train), len(everything.held_out)) == (0, 20)
    with pytest.raises(ValueError, match="held_out is 20 of 20"):
        MathFile(str(tmp_path / "a.jsonl"), held_out=20).build()


def test_limit_takes_the_first(tmp_path):
    problems = MathFile(write(tmp_path / "a.jsonl", PLAIN), limit=3).build()
    assert content(problems) == content(MathFile(str(tmp_path / "a.jsonl")).build())[:3]
    assert problems.counts["left out: over the limit"] == 17


@pytest.mark.slow
def test_the_hub_out_of_reach_is_told_with_what_to_do(monkeypatch):
    import datasets

    def no_network(*_, **__):
        raise ConnectionError("offline")

    monkeypatch.setattr(datasets, "load_dataset", no_network)
    with pytest.raises(EnvironmentLacks, match=r"openai/gsm8k cannot be fetched.*offline.*give a file"):
        GSM8K().build()


@pytest.mark.slow
def test_the_hub_is_read_through_datasets(monkeypatch):
    import datasets

    asked = {}

    def load_dataset(name, subset, split, revision):
        asked.update(name=name, subset=subset, split=split, revision=revision)
        return datasets.Dataset.from_list(VERL)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    problems = MathFile("owner/name", split="test", revision="abc").build()
    assert asked == {"name": "owner/name", "subset": None, "split": "test", "revision": "abc"}
    assert content(problems) == [(row["id"], row["problem"], row["answer"]) for row in PLAIN]


def test_leaks_are_found_through_layout_but_not_through_signs():
    train = collect("two", problems_of("Find $x$ if $\\frac{1}{2} x=3$.", "Solve x^2 - 3 = 0."))
    assert leaks(train, problems_of("Find x if  $\\dfrac{1}{2} x = 3$", "Solve x^2 + 3 = 0.", "Other")) == 1
    assert leaks(train, []) == 0


def problems_of(*texts):
    return [Problem(str(number), text) for number, text in enumerate(texts)]


@pytest.mark.parametrize("kind", ["aime24", "aime25"])
def test_shipped_contests(kind):
    problems = make_math({"kind": kind})
    assert (len(problems.train), len(problems.held_out)) == (0, 30)
    found = [problems.problem(int(i)) for i in problems.held_out]
    assert [p.id for p in found] == [f"{kind}-{contest}-{i}" for contest in ("I", "II") for i in range(1, 16)]
    assert all(p.answer == str(int(p.answer)) and 0 <= int(p.answer) <= 999 for p in found)
    assert problems.counts == {"read: rows": 30}


def test_answers_that_other_copies_have_wrong():
    """One copy of 2024 has 480 for I-8, three of 2025 have degrees in II-5."""
    for kind, id, answer in (("aime24", "aime24-I-8", "197"), ("aime25", "aime25-II-5", "336")):
        problems = make_math({"kind": kind})
        assert [p.answer for p in map(problems.problem, problems.held_out) if p.id == id] == [answer]


def test_the_shelf_lists_the_kinds_and_their_options():
    readme = (ROOT / "envs" / "math" / "README.md").read_text(encoding="utf-8")
    tables = dict(re.findall(r"^\| (`[a-z].*?) \| (.*) \|$", readme, re.MULTILINE))
    listed = {
        kind: set(re.findall(r"`(\w+)`", options))
        for kinds, options in tables.items()
        for kind in re.findall(r"`([\w-]+)`", kinds)
    }
    assert set(listed) == set(MATH_KINDS)
    file = {field.name for field in fields(MathFile)}
    for kind, options in listed.items():
        own = {field.name for field in fields(MATH_KINDS[kind])}
        assert own == (options if "file" not in options else options - {"file"} | file)


# Hostile files: every bad row is named by its number and its reason, or dropped and counted; nothing starts before.

GOOD = {"id": "a", "problem": "What is 1 + 1?", "answer": "2"}


def chat(*roles, content="Why?"):
    return json.dumps({"prompt": [{"role": role, "content": content} for role in roles], "answer": "1"}).encode()


def row(**changes):
    return json.dumps(
        {name: value for name, value in (GOOD | {"id": "b"} | changes).items() if value != "gone"}
    ).encode()


BAD = (
    *(b'{"problem": "\xff", "answer": "1"}', b'{"problem": ', b"[1, 2]", row(problem="gone"), row(problem=None)),
    *(row(problem=value) for value in (3, {"text": "Why?"}, " \n\t ", "a\0b", "a\ud83d", "x" * 100_001)),
    *(row(answer=value) for value in ("gone", None, " ", True, ["2"], float("nan"), 1.0526315789473685e17, "2\0")),
    *(row(answer="so \\boxed{\\frac{1}{2}"), row(id=["b"]), row(id="a", answer="3")),
    *(row(answer=value) for value in ("#### ", "so 2\n####", "####\n2")),
    row(problem=BEFORE + "What is 1 + 1?"),  # half of DAPO's wording
)


@pytest.mark.parametrize("line", BAD)
def test_a_bad_row_is_named_by_its_number_or_dropped(tmp_path, line):
    file = tmp_path / "mine.jsonl"
    file.write_bytes(json.dumps(GOOD).encode() + b"\n\n" + line + b"\n")
    with pytest.raises(UsageError, match="row 3: "):
        MathFile(str(file)).build()
    kept = MathFile(str(file), drop_bad_rows=True).build()
    assert [kept.problem(int(i)).id for i in kept.train] == ["a"]
    assert sum(count for name, count in kept.counts.items() if name.startswith("dropped: ")) == 1


def test_without_a_reward_that_takes_it_a_row_needs_no_gold_answer(tmp_path):
    """No column, nothing in it, or something that is no answer: refused for a verifier, and kept without it."""
    file = tmp_path / "mine.jsonl"
    for changes in ({"answer": "gone"}, {"answer": None}, {"answer": "gone", "solution": "no box"}):
        file.write_bytes(row(**changes) + b"\n" + row(id="c", problem="Why?", **changes))
        with pytest.raises(UsageError):
            make_math({"kind": "file", "path": str(file)})
        problems = make_math({"kind": "file", "path": str(file)}, gold=False)
        assert content(problems) == [("b", GOOD["problem"], ""), ("c", "Why?", "")]
    file.write_bytes(row())
    assert content(make_math({"kind": "file", "path": str(file)}, gold=False))[0][-1] == "2"


CHATS = (
    *(chat("system"), chat("user", "assistant"), chat("critic", "user"), chat("user", content=[{"type": "image"}])),
    *(chat("user", "user", content=None), chat(), json.dumps({"prompt": ["Why?"], "answer": "1"}).encode()),
    chat("user").replace(b'"role"', b'"tool_calls": [1], "role"'),
)


def test_a_chat_keeps_every_message_and_another_conversation_is_another_problem(tmp_path):
    """The last message is the question; a copy of a whole conversation is merged, with another answer it is dropped."""
    file = tmp_path / "mine.jsonl"
    both = chat("system", "user", "assistant", "user"), chat("user"), chat("system", "user", "assistant", "user")
    file.write_bytes(b"\n".join(both))
    problems = MathFile(str(file)).build()
    asked = [problems.problem(int(n)) for n in problems.train]
    before = ("system", "Why?"), ("user", "Why?"), ("assistant", "Why?")
    assert [(one.history, one.problem) for one in asked] == [(before, "Why?"), ((), "Why?")]
    file.write_bytes(b"\n".join([*both, both[0].replace(b'"1"', b'"2"')]))
    assert [len(MathFile(str(file)).build().problem(0).history)] == [0]


@pytest.mark.parametrize("line", CHATS)
def test_a_bad_chat_is_named(tmp_path, line):
    file = tmp_path / "mine.jsonl"
    file.write_bytes(chat("system", "user") + b"\n" + line)
    with pytest.raises(UsageError, match="row 2: "):
        MathFile(str(file)).build()
