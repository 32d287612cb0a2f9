"""The tables of benchmarks/README.md are pure functions of the records of sittings. Nothing is timed here."""

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tests.nightly import mostly_nightly

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
MACHINE = {"processor": "2 cores of P", "memory": "24 GiB", "system": "Linux x86_64", "versions": {"Python": "3.11"}}
HARNESS = ("clock", "limits", "machine", "memory", "record", "rows")
MODULES = ("table", "run", "gpu", "head_ways", "harness", *(f"harness.{name}" for name in HARNESS))


@pytest.fixture
def bench(monkeypatch):
    """Import a module of the folder; afterwards none of its plain names is left behind."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield import_module
    for name in MODULES:
        sys.modules.pop(name, None)


def claim(key="speed/one", **more):
    return {"key": key, "what": "W", "workload": "L", "peer": "", "unit": "x", "goal": ">= 5", "limit": ""} | more


def record(claims, rows, failed="", **entry):
    told = {"date": "2026-11-21", "rounds": 3, "load": [0.2, 0.3], "environment": MACHINE, "rows": rows}
    return {"format": 1, "claims": claims, "results": {"speed": told | {"failed": failed} | entry}}


def cells(bench, record, line=0):
    """Of a row of the table of one record."""
    return split(bench("table").table([bench("harness.rows").Claim(**one) for one in record["claims"]], [record]), line)


def split(table, line=0):
    """The cells of a row."""
    rows = [text for text in table.splitlines() if text.startswith("| ")]
    return [cell.strip() for cell in rows[1 + line].strip("|").split("|")]


def test_a_row_has_its_goal_median_range_verdict_and_limit(bench):
    row = {"values": [7.0, 6.0, 6.5], "limit": "2 ns", "times": [3.0, 4.0, 3.5], "note": "said"}
    found = cells(bench, record([claim(limit="five", peer="scipy")], {"speed/one": row}))
    assert found == ["W", "L", "scipy", ">= 5x", "6.5x [6, 7], yes; said; 3.5 times its limit (2 ns)", "five"]


@pytest.mark.parametrize(
    ("goal", "values", "said"),
    [
        (">= 5", [5.0, 6.0, 7.0], "6x [5, 7], yes"),
        (">= 5", [4.9, 6.0, 7.0], "6x [4.9, 7], yes, but not in every round"),
        (">= 5", [4.0, 4.9, 7.0], "4.9x [4, 7], **no**"),
        ("<= 5", [4.0, 5.0, 5.0], "5x [4, 5], yes"),
        ("<= 5", [4.0, 5.1, 5.2], "5.1x [4, 5.2], **no**"),
        ("", [1.0], "1x"),
    ],
)
def test_the_median_decides_and_the_range_is_told(bench, goal, values, said):
    assert cells(bench, record([claim(goal=goal)], {"speed/one": {"values": values}}))[4] == said


def test_what_did_not_run_is_a_row_with_its_reason_and_counts_for_nothing(bench):
    """A row that failed, one that never came, and one of a benchmark that was not started."""
    claims = [claim(), claim("speed/two"), claim("speed/three"), claim("other/one")]
    rows = {"speed/one": {"values": [6.0]}, "speed/two": {"failed": "no peer"}}
    told = record(claims, rows, failed="ended with code 1: oh")
    assert [cells(bench, told, line)[4] for line in range(4)] == [
        "6x, yes",
        "not run: no peer",
        "not run: ended with code 1: oh",
        "not in this sitting",
    ]
    listed = [bench("harness.rows").Claim(**one) for one in claims]
    assert bench("table").count(told, listed) == "- P: 1 of 1 goals are met; 3 rows did not run."
    assert bench("harness.record").missing(told, ["speed", "other"]) == ["speed", "other"]


def test_a_busy_machine_is_told(bench):
    assert cells(bench, record([claim()], {"speed/one": {"values": [6.0]}}, load=[3.2, 3.0]))[4].endswith("load 3.2")


def test_every_processor_has_a_column_and_every_environment_a_line(bench):
    """Days are of all benchmarks of an environment; a GPU is named before its host."""
    other = MACHINE | {"processor": "H of 79 GiB, 16 cores of Q"}
    first = record([claim(), claim("more/one")], {"speed/one": {"values": [6.0]}})
    first["results"]["more"] = first["results"]["speed"] | {
        "date": "2026-11-23",
        "rows": {"more/one": {"values": [1.0]}},
    }
    second = record([claim()], {"speed/one": {"values": [7.0]}}, environment=other)
    table = bench("table").table([bench("harness.rows").Claim(**claim())], [first, second])
    assert split(table, -1) == ["what", "workload", "peer", "goal", "P", "H of 79 GiB, Q", "limit"]
    assert split(table) == ["W", "L", "-", ">= 5x", "6x, yes", "7x, yes", "-"]
    assert table.splitlines()[:2] == ["- P: 1 of 1 goals are met.", "- H of 79 GiB, Q: 1 of 1 goals are met."]
    assert table.splitlines()[-2:] == [
        "- 2 cores of P, 24 GiB, Linux x86_64; Python 3.11; 2026-11-21 to 2026-11-23",
        "- H of 79 GiB, 16 cores of Q, 24 GiB, Linux x86_64; Python 3.11; 2026-11-21",
    ]


def test_a_processor_keeps_its_record_in_a_file_of_its_name(bench):
    path = bench("table").record_path("Intel(R) Xeon(R) Processor (family 6, model 167, AVX-512, AMX)")
    assert path.name == "intel-xeon-processor-family-6-model-167-avx-512-amx.json"
    for record in bench("table").SITTINGS.glob("*.json"):
        found = bench("harness.record").read(record)
        assert bench("table").record_path(bench("table").processor_of(found)) == record


def test_only_what_is_between_the_marks_changes(bench):
    table = bench("table")
    page = f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n"
    once = table.inserted(page, "new")
    assert "old" not in once
    assert once.startswith("before\n")
    assert once.endswith(f"{table.END}\nafter\n")
    assert table.inserted(once, "new") == once
    with pytest.raises(SystemExit, match="needs one line"):
        table.inserted("no marks", "new")


def test_a_record_comes_back_as_it_was_written(bench, tmp_path):
    records = bench("harness.record")
    told = records.empty() | {"results": record([], {"speed/one": {"values": [1 / 3]}})["results"]}
    records.write(tmp_path / "bench.json", told)
    found = records.read(tmp_path / "bench.json")
    assert found["results"]["speed"]["rows"]["speed/one"]["values"] == [0.3333333]
    assert found == json.loads((tmp_path / "bench.json").read_text())


def test_every_claim_is_measured_by_a_script_and_can_be_judged(bench):
    """Keys are unique, their benchmarks are listed and have a module that names the row, goals can be read."""
    import tomllib

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


def test_the_readme_holds_the_tables_of_the_records(bench):
    """The page is what `python benchmarks/table.py` makes of the stored sittings."""
    table = bench("table")
    page = table.README.read_text(encoding="utf-8")
    assert table.inserted(page, table.page_text(table.sittings(), table.accelerators())) == page


def test_a_benchmark_that_fails_is_told_and_what_it_measured_before_stays(bench, tmp_path, monkeypatch):
    """A real process that writes one row and dies: its reason is its last line, without the path of this folder."""
    run = bench("run")
    (tmp_path / "one.py").write_text(
        "import json, pathlib, sys\n"
        "out = pathlib.Path(sys.argv[sys.argv.index('--out') + 1])\n"
        f"out.write_text(json.dumps({{'environment': {MACHINE!r}, 'rows': {{'speed/one': {{'values': [6.0]}}}}}}))\n"
        "raise RuntimeError('the peer broke')\n"
    )
    monkeypatch.setattr(run, "HERE", tmp_path)
    found = run.measured("speed", {"environment": "base", "minutes": 1}, 1)
    assert found["failed"] == "ended with code 1: RuntimeError: the peer broke"
    assert found["rows"] == {"speed/one": {"values": [6.0]}}
    told = {"claims": [claim(), claim("speed/two")], "results": {"speed": found}}
    assert bench("harness.record").failures(told, "speed") == {"speed/two": found["failed"]}


def test_an_environment_that_is_not_there_is_told(bench, tmp_path, monkeypatch):
    run = bench("run")
    monkeypatch.setitem(run.PLACES, "bench", tmp_path / ".venv-bench")
    found = run.measured("speed", {"environment": "bench", "minutes": 1}, 1)
    assert found["failed"] == ".venv-bench is not there: make .venv-bench/installed"


GPU_PARTS = {
    "solver": ["gpu/solver", "gpu/solver-error"],
    "head": [f"gpu/{name}{end}" for end in ("", "-narrow") for name in ("head", "peak", "trl", "liger")],
    "step": [f"gpu/{row}-{name}" for name in ("dense", "mixture") for row in ("mfu", "update-predicted")],
    "rollouts": ["gpu/rollouts", "gpu/rollouts-rate"],
    "vllm": [f"gpu/vllm-{name}" for name in ("rate", "predicted", "publish", "mismatch")],
    **{recipe: [f"gpu/{recipe}-{name}" for name in ("step", "predicted")] for recipe in ("starter-100m", "one-gpu")},
}


@pytest.mark.slow
@pytest.mark.parametrize("part", mostly_nightly(GPU_PARTS, "solver"))
def test_the_script_for_gpus_runs_in_small_on_a_cpu(tmp_path, part):
    """The same code on tiny shapes: every row comes, is kept, and can be judged. Its figures mean nothing."""
    path = tmp_path / "gpu.json"
    command = [sys.executable, str(BENCHMARKS / "gpu.py"), "--tiny", "--part", part, "--record", str(path)]
    environment = {**os.environ, "PYTHONPATH": str(BENCHMARKS.parent), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    entry = json.loads(path.read_text())["results"]["gpu"]
    assert part in entry["parts"]
    assert set(GPU_PARTS[part]) <= set(entry["rows"])
    for row in entry["rows"].values():
        assert row.get("failed") or all(value >= 0 for value in row["values"])
    if part == "solver":
        assert entry["rows"]["gpu/solver-error"]["values"][0] < 1e-12


def test_a_record_of_another_machine_is_not_mixed(bench, tmp_path, monkeypatch):
    gpu, measured = bench("gpu"), bench("harness.rows").Measured
    path = tmp_path / "gpu.json"
    gpu.keep(path, measured("gpu/solver", [0.2]))
    gpu.keep(path, measured("gpu/solver-error", [1e-13]), {"solver": 3.0})
    assert gpu.finished(path) == ["solver"]
    monkeypatch.setattr(gpu, "surroundings", lambda: {"processor": "another"})
    with pytest.raises(SystemExit, match="another machine"):
        gpu.keep(path, measured("gpu/solver", [0.1]))
    rows = bench("harness.record").read(path)["results"]["gpu"]["rows"]
    assert rows == {
        "gpu/solver": {"key": "gpu/solver", "values": [0.2]},
        "gpu/solver-error": {"key": "gpu/solver-error", "values": [1e-13]},
    }
    found = bench("harness.record").read(path)
    assert "0.2 ns" in bench("table").page_text([], [found])
