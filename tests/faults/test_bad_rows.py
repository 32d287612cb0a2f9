"""Bad data is named by file, row and reason before anything is trained; dropping it is asked for, and counted."""

import json
import re

import pytest

from pmdkit.envs.math.datasets import MathFile
from pmdkit.errors import UsageError

from .configs import run
from .rows import FILES, JSONL, PARQUET, ROWS, mutated
from .scale import scaled

REFUSED = re.compile(r"bad rows? of \d+: row \d+: |mine.jsonl has no column|mine has no problem left")
RECIPE = """\
[env]
kind = "file"
path = "{path}"
held_out = 1
[model]
build = "starter"
[objective]
name = "pmd-mean"
[schedule]
steps = 1
prompts = 2
group = 2
[rollout]
width = 8
max_prompt = 256
[evaluation]
problems = 1
"""


@pytest.mark.parametrize(("row", "reason"), ROWS.values(), ids=ROWS)
def test_a_bad_row_is_named_or_dropped_and_counted(row, reason, tmp_path):
    (tmp_path / "mine.jsonl").write_bytes(JSONL + row + b"\n")
    with pytest.raises(UsageError, match=r"^mine\.jsonl has 1 bad row of 6: row 6: ") as told:
        MathFile("mine.jsonl").build()
    assert reason in str(told.value)
    kept = MathFile("mine.jsonl", drop_bad_rows=True).build()
    assert len(kept.train) == 5
    assert sum(number for name, number in kept.counts.items() if name.startswith("dropped: ")) == 1
    assert kept.counts["read: rows"] == 6


def test_the_same_row_twice_is_merged_and_counted(tmp_path):
    (tmp_path / "mine.jsonl").write_bytes(JSONL + JSONL.splitlines(keepends=True)[0])
    found = MathFile("mine.jsonl").build()
    assert (len(found.train), found.counts["merged: same id and content"]) == (5, 1)


@pytest.mark.parametrize(("name", "data", "reason"), [(name, *told) for name, told in FILES.items()], ids=FILES)
def test_a_file_of_another_kind_is_named(name, data, reason, tmp_path):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UsageError, match=re.escape(name)) as told:
        MathFile(name).build()
    assert reason in str(told.value)


@pytest.mark.parametrize("reason", ["no answer", "NaN", "not UTF-8", "fifty megabytes"])
def test_nothing_is_trained_on_bad_rows(reason, tmp_path):
    """By the command line: exit 2, the row in the one line, no folder of a run."""
    row, told = ROWS[reason]
    (tmp_path / "mine.jsonl").write_bytes(JSONL + row + b"\n")
    (tmp_path / "mine.toml").write_text(RECIPE.format(path="mine.jsonl"))
    outcome = run("llm", "mine.toml", "--out", "out")
    assert outcome.code == 2, outcome
    assert "mine.jsonl has 1 bad row of 6: row 6: " in outcome.err
    assert told in outcome.err
    assert outcome.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_what_is_dropped_is_said_and_kept_in_the_run(tmp_path):
    """Bad rows where that is asked for, and prompts over the limit, which are never cut."""
    long = json.dumps({"id": "long", "problem": "What is 1 + 1? " * 300, "answer": "2"}).encode()
    bad = [ROWS["no answer"][0], ROWS["NaN"][0], long]
    (tmp_path / "mine.jsonl").write_bytes(JSONL + b"\n".join(bad))
    (tmp_path / "mine.toml").write_text(RECIPE.format(path="mine.jsonl"))
    outcome = run("llm", "mine.toml", "--out", "out", "--set", "env.drop_bad_rows=true")
    assert outcome.code == 0, outcome
    kept = json.dumps(json.loads((tmp_path / "out" / "data.json").read_text()))
    for reason in ("the answer is missing", "the answer is not a finite number", "prompt over 256 tokens"):
        assert f"dropped: {reason}" in kept
        assert reason in outcome.err + outcome.out


def test_a_file_is_read_or_refused_whatever_happened_to_its_bytes(tmp_path):
    """Rows are read, or refused by number; no other error, and never a row that the file does not hold."""
    read = refused = 0
    for number in range(scaled(500)):
        data = mutated(number)
        (tmp_path / "mine.jsonl").write_bytes(data)
        found, told = built("mine.jsonl")
        if found is None:
            refused += 1
            assert REFUSED.search(told), (number, told)
            continue
        read += 1
        assert len(found.train) <= data.count(b"\n") + 1
        for index in found.train:
            assert found.problem(int(index)).answer in data.decode(), number
    assert read > 0
    assert refused > read


def test_damaged_parquet_is_read_or_refused(tmp_path):
    """Single bytes changed in a table: the reader refuses the file, or gives rows that pass every check."""
    places = range(4, len(PARQUET), max(1, len(PARQUET) // scaled(60)))
    for place in places:
        (tmp_path / "mine.parquet").write_bytes(PARQUET[:place] + bytes([PARQUET[place] ^ 0x55]) + PARQUET[place + 1 :])
        found, told = built("mine.parquet", drop_bad_rows=True)
        assert found is not None or "mine.parquet" in told


def built(path, **options):
    """The problems of a file, or None and why not."""
    try:
        return MathFile(path, **options).build(), ""
    except UsageError as problem:
        return None, str(problem)
