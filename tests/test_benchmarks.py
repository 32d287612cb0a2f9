"""The tables of benchmarks/README.md are pure functions of the records of sittings. Nothing is timed here."""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from math import log
from pathlib import Path

import numpy as np
import pytest

from pmdkit.stats import interval_text, paired_difference
from pmdkit_lab.planner.cluster import RECORD
from tests.nightly import mostly_nightly

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
HARNESS = ("clock", "limits", "machine", "memory", "record", "rows")
MODULES = ("table", "run", "gpu", "head_ways", "twins", "harness", *(f"harness.{name}" for name in HARNESS))


@pytest.fixture
def bench(monkeypatch):
    """Import a module of the folder; afterwards none of its plain names is left behind."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield import_module
    for name in MODULES:
        sys.modules.pop(name, None)


def test_every_claim_is_measured_by_a_script_and_can_be_judged(bench):
    """Keys are unique, their benchmarks are listed and have a module that names the row, goals can be read."""
    rows = bench("harness.rows")
    listed = tomllib.loads((BENCHMARKS / "rows.toml").read_text(encoding="utf-8"))["benchmark"]
    claims = rows.claims()
    assert len({one.key for one in claims}) == len(claims)
    assert {rows.benchmark_of(one.key) for one in claims} == set(listed)
    for one in claims:
        if one.goal:
            assert one.met(1.0) in (True, False)
        if listed[rows.benchmark_of(one.key)]["environment"] != "none":
            assert (BENCHMARKS / f"{rows.benchmark_of(one.key)}.py").exists()


def names(script: Path, text: str) -> bool:
    """Whether a text has the path of a script, or imports its module."""
    module = re.escape(script.stem)
    imported = rf"^ *(from ([\w.]*\.)?{module} import|from [\w.]+ import .*\b{module}\b|import ([\w.]*\.)?{module}\b)"
    return script.stem in text and bool(re.search(rf"\b{module}\.py\b|{imported}", text, re.MULTILINE))


@pytest.mark.parametrize("folder", ["benchmarks", "docs/generate"])
def test_every_script_is_named_by_a_row_a_page_or_a_test(folder):
    """Or by the build, a package, or a script that is named itself."""
    root, listed = BENCHMARKS.parent, tomllib.loads((BENCHMARKS / "rows.toml").read_text(encoding="utf-8"))["benchmark"]
    left = {path for path in (root / folder).rglob("*.py") if path.name != "__init__.py"}
    kinds = {"tests": "py", "packages": "py", "docs": "md", "benchmarks": "md", "tutorials": "ipynb"}
    files = [path for where, kind in kinds.items() for path in (root / where).rglob(f"*.{kind}")]
    files += [*root.glob("*.md"), root / "Makefile", root / "mkdocs.yml", *(root / "docs").glob("*.py")]
    texts = [path.read_text(encoding="utf-8") for path in files]
    named = {path for path in left if folder == "benchmarks" and path.stem in listed}
    pages = root / "docs" / "explore"  # a module of explorables/ draws the page of its name
    named |= {path for path in left if path.parent.name == "explorables" and (pages / path.stem).is_dir()}
    while left:
        named |= {path for path in left for text in texts if names(path, text)}
        assert named, f"nothing names {sorted(map(str, left))}: name them where their result is used, or delete them"
        texts = [path.read_text(encoding="utf-8") for path in named]
        left, named = left - named, set()


@pytest.mark.parametrize("path", sorted(BENCHMARKS.glob("*.py")), ids=lambda path: path.stem)
def test_a_benchmark_says_why_it_is_kept(path):
    """In one line of its docstring."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    assert sum(line.startswith("Kept because ") for line in text.splitlines()) == 1


@pytest.mark.slow
def test_the_readme_holds_the_tables_of_the_records(bench):
    """The page is what `python benchmarks/table.py` makes of the stored sittings."""
    table = bench("table")
    page = table.README.read_text(encoding="utf-8")
    assert table.inserted(page, table.page_text(table.sittings(), table.accelerators())) == page


def test_the_page_of_twins_has_the_table_of_its_record_and_both_sides_have_one_schedule(bench):
    """The record counts the programs that are there."""
    twins, record = bench("twins"), json.loads((BENCHMARKS / "results" / "twins.json").read_text())
    page = (BENCHMARKS.parent / "docs" / "use" / "trainers.md").read_text()
    assert twins.table(record["readings"]) == record["table"]
    for task, sides in twins.PROGRAMS.items():
        for side in sides:
            title, row = {"pmdkit": "pmdkit", "trl": "TRL 1.16"}[side], record["table"][task][side]
            numbers = f"{row['lines']} | {row['cpu']:.0f} | {row['first']:.2f} | {row['last']:.2f}"
            assert f"| {title} | {numbers} |" in page
        recipe = tomllib.loads((BENCHMARKS / "twins" / sides["pmdkit"][0]).read_text())
        program, schedule = (BENCHMARKS / "twins" / sides["trl"][0]).read_text(), recipe["schedule"]
        for name, value in (
            ("max_steps", schedule["steps"]),
            ("num_generations", schedule["group"]),
            ("per_device_train_batch_size", schedule["prompts"] * schedule["group"]),
            ("max_completion_length", recipe["rollout"]["width"]),
        ):
            assert f"{name}={value}," in program
        assert float(program.partition("learning_rate=")[2].partition(",")[0]) == schedule["lr"]


@pytest.mark.parametrize(
    ("values", "before", "said"),
    [
        ([2.0, 2.3, 9.0], [2.0], ""),  # the median is 15 % above, which is allowed
        ([2.31], [2.0], "cold_start/help: 2.31 s, stored 2 s"),
        ([1.69], [2.0], "cold_start/help: 1.69 s, stored 2 s"),
        ([0.0], [0.0], ""),
        ([1.0], [], "cold_start/help: 1 s; nothing is stored to compare it with"),
        ([], [2.0], "cold_start/help: not run"),
    ],
)
def test_a_sitting_says_which_rows_moved_by_more_than_15_percent(bench, values, before, said):
    """By medians. A row that did not run is said, and the others of this table were not asked for."""
    run, records = bench("run"), bench("harness.record")

    def record(values):
        row = {"cold_start/help": {"values": values}} if values else {}
        return records.empty() | {"results": {"cold_start": {"rows": row, "failed": ""}}}

    *told, last = run.compared(record(values), record(before), ["cold_start"])
    about = [line.strip() for line in told if "cold_start/help" in line]
    assert about == ([said] if said else [])
    assert len(told) == len(records.empty()["claims"]) - (not said)
    assert last.strip() == f"{int(not said)} rows are within 15% of what is stored"


ENTRIES = [
    *("lock", "graphs", "attention", "one-gpu", "smollm2", "runners", "profile", "head", "step", "vllm", "rollouts"),
    *("sharded", "stale", "one-gpu-rows", "starter-100m", "solver"),
]


@pytest.mark.slow
@pytest.mark.parametrize("entry", mostly_nightly(ENTRIES, "lock", "one-gpu", "solver"))
def test_the_first_hour_on_a_gpu_goes_on_in_small_on_a_cpu(bench, tmp_path, entry):
    """A journal that lacks one entry: that one runs, and all that it sees is written. The figures mean nothing."""
    hour, path = bench("first_hour"), tmp_path / "hour.jsonl"
    assert list(hour.QUEUE) == ENTRIES
    before = [{"protocol": hour.protocol(), "entry": name, "row": "end"} for name in ENTRIES if name != entry]
    path.write_text("".join(json.dumps(row) + "\n" for row in before))
    environment = {**os.environ, "PYTHONPATH": str(BENCHMARKS.parent), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(BENCHMARKS / "first_hour.py"), "--tiny", "--journal", str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *seen, end = map(json.loads, path.read_text().splitlines()[len(before) :])
    assert {row["entry"] for row in (*seen, end)} == {entry}
    assert end["ended"] == ("shown" if seen else f"skipped: {hour.QUEUE[entry].needs} is not installed")
    if entry == "solver":
        rows = json.loads(path.with_suffix(".json").read_text())["results"]["gpu"]["rows"]
        assert rows["gpu/solver-error"]["values"][0] < 1e-12


def test_a_large_file_travels_in_parts(bench, tmp_path, monkeypatch):
    hour = bench("first_hour")
    monkeypatch.setattr(hour, "PART", 4)
    (whole := tmp_path / "a.whl").write_bytes(b"0123456789")
    hour.pack(tmp_path)
    assert [part.stat().st_size for part in sorted(tmp_path.glob("*.part-*"))] == [4, 4, 2]
    whole.unlink()
    hour.join(tmp_path)
    assert whole.read_bytes() == b"0123456789"


def test_the_page_says_how_far_the_rehearsal_s_seconds_are_from_measured_ones():
    found = json.loads((BENCHMARKS / "results" / "roofline.json").read_text())
    page = " ".join((BENCHMARKS.parent / "docs" / "use" / "plan.md").read_text().split())
    ours, plan = (
        {case: f"{row[key] / row['measured']:.2f}" for case, row in found.items()} for key in ("rehearsed", "planned")
    )
    words = "{dense} for a dense model, {mixture} for a mixture, {one-gpu} for the ministeps of `one-gpu`, "
    assert (words + "and {head} and {head-narrow} for the head").format(**ours) in page
    assert tuple(f"{share:.2f}" for share in RECORD) == (min(ours.values()), max(ours.values()))
    for row in found.values():  # the plan is nearer in all five
        assert abs(log(row["planned"] / row["measured"])) < log(row["measured"] / row["rehearsed"])
    for case, kind in (("dense", "the dense model"), ("mixture", "the mixture"), ("one-gpu", "`one-gpu`")):
        assert f"from {found[case]['rehearsed']} to {found[case]['now']} s for {kind}" in page
    assert "gives {dense}, {mixture}, {one-gpu}, {head} and {head-narrow}.".format(**plan) in page


def test_the_table_of_kernels_is_what_the_rehearsal_predicts():
    """A step is taken to be as many times its bound as the measured one was."""
    found = json.loads((BENCHMARKS / "results" / "roofline.json").read_text())
    page = " ".join((BENCHMARKS / "README.md").read_text().split())
    for case, row in found.items():
        numbers = (row["measured"], row["rehearsed"], row.get("before", "-"), row["now"])
        assert f"| {case} | {' | '.join(f'{x} s' if x != '-' else x for x in numbers)} |" in page
    expected = {case: row["measured"] * row["now"] / row["rehearsed"] for case, row in found.items()}
    assert f"from 35.6 to {35.6 * found['dense']['measured'] / expected['dense']:.0f} % (goal 45)" in page
    assert f"takes {1e3 * expected['head']:.0f} and {1e3 * expected['head-narrow']:.0f} ms (goals" in page
    assert f"bound is {found['mixture']['rehearsed'] / found['mixture']['now']:.2f} times as short" in page


def test_the_table_of_one_gpu_is_what_was_recorded():
    """Steps 2 to 4; the first compiles."""
    record = json.loads((BENCHMARKS / "results" / "gpu-one-gpu.json").read_text())
    rows, phases = record["metrics"][1:], record["phases"]
    page = (BENCHMARKS / "README.md").read_text()
    for key, digits in (("seconds_rollout", 1), ("seconds_update", 1)):
        low, high = (round(pick(row[key] for row in rows), digits) for pick in (min, max))
        assert f"{low} to {high} s" in page
    used = [phase["device_used"] for phase in phases if phase["phase"] == "update"]
    woken = [phase["device_used"] for phase in phases if phase["phase"] == "sync_weights"]
    assert f"{woken[-1]:.1f} GiB, {used[-1]:.1f} GiB" in page


def test_the_page_says_what_weights_in_flight_bought():
    """Pass rates after 12 steps of the starter, each run beside the one in turns of its seed."""
    last, seventh, text = {}, [], (BENCHMARKS.parent / "docs" / "use" / "engines.md").read_text()
    page = " ".join(text.replace("\u2212", "-").split())
    for name in ("in-flight", "in-flight-exact"):
        for run in json.loads((BENCHMARKS / "results" / f"{name}.json").read_text())["runs"]:
            if run["state"] == "finished":
                options = run["options"]
                arm = "in flight" if "rollout.in_flight" in options else f"lag {options['rollout.lag']}"
                last.setdefault(arm, {})[run["seed"]] = run["summary"]["pass_rate_last"]
                seventh += [run["curve"]["pass_rate"][6]] if arm == "lag 0" else []
    turns = last["lag 0"]
    assert f"| in turns | 0 | {len(turns)} | {np.mean(list(turns.values())):.3f} | |" in page
    for arm, age in (("in flight", "0.5"), ("lag 1", "1"), ("lag 4", "4")):
        pair = np.array([(turns[seed], rate) for seed, rate in last[arm].items()]).T
        told = interval_text(paired_difference(*pair).difference, "+.3f")
        assert f"| {arm} | {age} | {len(pair[0])} | {pair[1].mean():.3f} | {told} |" in page
    gap = paired_difference(*np.array([(rate, last["in flight"][seed]) for seed, rate in last["lag 1"].items()]).T)
    assert f"all five seeds, by {interval_text(gap.difference, '+.3f')}, undecided" in page
    assert (gap.wins, f"turns pass {np.mean(seventh):.3f}" in page) == (5, True)
