"""Each benchmark runs with tiny sizes, so that a change of pmdkit cannot break one unseen. The figures mean nothing."""

import ast
import importlib
import json
import os
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from pmdkit.llm.engines.base import Sampling
from pmdkit.resolve import resolve
from tests.nightly import mostly_nightly

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
ROWS = tomllib.loads((BENCHMARKS / "rows.toml").read_text(encoding="utf-8"))
MODULES = {path.stem for path in BENCHMARKS.glob("*.py")}
APART = {"vllm_sampling", "vllm_starter", "llama_sampling"}  # need a peer that no environment of the tests has
OURS = ("pmdkit", "pmdkit_lab", "pmdkit_course", "strict_answers")
STEP_SIZES = {"CUT": 8, "MEAN": 4, "LAYERS": 1, "WIDTH": 128, "VOCABULARY": 64}
STEP = {f"step_task.{name}": size for name, size in STEP_SIZES.items()}
SMALL = {  # by benchmark: sizes, as module.NAME
    "solver": {
        "solver.TAUS": (1.0, 0.01), "solver.SQUARE": (20, 300), "solver.WIDE": (10, 100), "solver.FLAT": (20, 10),
    },
    "solver_avx2": {"solver.TAUS": (1.0, 0.01), "solver.SQUARE": (20, 300), "solver_avx2.WIDE": "none"},
    "llm_head": {
        "llm_head.TOKENS": 1024, "llm_head.BF16_TOKENS": 1024, "llm_head.VOCABULARY": 128, "llm_head.WIDTH": 32,
        "llm_head.LARGE": (1024, 256, 32), "llm_head.GROWING": (1024, 2048), "llm_head.THIN": (128, 32),
    },
    "llm_precision": {"llm_precision.TOKENS": 64, "llm_precision.VOCABULARY": 128, "llm_precision.WIDTH": 32},
    "llm_packing": {
        "llm_packing.LAYERS": 1, "llm_packing.WIDTH": 128, "llm_packing.VOCABULARY": 64,
    },
    "llm_long": {"llm_long.SHORT": 16, "llm_long.LONG": 64},
    "llm_sampling": {},
    "llm_step": {"llm_step.PROMPTS": 2, "llm_step.STEPS": 1, **STEP},
    "llm_staleness": {
        "llm_staleness.UPDATES": 2, "llm_staleness.STALE": {"prompts": 8, "ministeps": 2, "steps": 1},
        "llm_staleness.FRESH": {"prompts": 4, "ministeps": 1, "steps": 2}, **STEP,
    },
    "llm_overlap": {"llm_overlap.OPTIONS": {"prompts": 2, "ministeps": 1, "steps": 2}, **STEP},
    "cold_start": {"cold_start.REPEATS": 1},
    "toy_learning": {"toy_learning.TARGET": 0.0, "toy_learning.SEEDS": (1,), "toy_learning.STEPS": 2},
    "toy_step": {"toy_step.TASKS": {"modular-sum": 2, "reverse": 2, "sort": 2}},
    "toy_sampling": {
        "toy_sampling.PROMPTS": 4, "toy_sampling.FEW": 2, "toy_sampling.GROUP": 2, "toy_sampling.WARM_STEPS": 1,
    },
    "toy_threads": {"toy_threads.CASES": {"modular-sum": 1, "reverse": 1}},
    "shard_loading": {},
    "grading": {"grading.PLAIN": 10, "grading.PARSED": 2, "grading.HOSTILE": 4},
    "recorder": {"recorder.CASES": {"toy": ("modular-sum", 1, {}), "llm": ("starter", 1, {"evaluation.problems": 2})}},
    "page_frames": {},
}  # fmt: skip
QUICK = (
    "llm_precision", "llm_long", "llm_sampling", "llm_step", "llm_staleness",
    "toy_learning", "toy_step",
)  # fmt: skip


@pytest.fixture
def bench(monkeypatch):
    """Import modules of the folder by their plain names, in float32; afterwards none is left behind."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(BENCHMARKS.parent), *sys.path]))
    before, default, threads = set(sys.modules), torch.get_default_dtype(), torch.get_num_threads()
    torch.set_default_dtype(torch.float32)
    yield importlib.import_module
    torch.set_default_dtype(default)
    torch.set_num_threads(threads)
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in MODULES | {"harness"}:
            del sys.modules[name]


def test_every_benchmark_of_the_table_has_a_small_size():
    assert set(SMALL) | APART == {name for name, about in ROWS["benchmark"].items() if about["environment"] != "none"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # a benchmark is not a test of its peers' warnings
@pytest.mark.parametrize("name", mostly_nightly(SMALL, *QUICK))
def test_a_benchmark_gives_its_rows_in_small(bench, monkeypatch, name):
    """Each row of the table has values, or says which peer is missing."""
    if name == "page_frames" and not (BENCHMARKS.parent / "site" / "index.html").exists():
        pytest.skip("the site is not built: make docs")
    for place, value in SMALL[name].items():
        module, _, constant = place.partition(".")
        monkeypatch.setattr(bench(module), constant, value)
    if name == "llm_sampling":
        cases = bench("rollout_cases")
        small = cases.Case(1, 128, 64, 2, 2, 4)
        monkeypatch.setattr(cases, "CASES", dict.fromkeys(cases.CASES, small))
    if name in ("llm_step", "llm_staleness", "llm_overlap"):  # in this process, where the sizes are
        ours, side = bench("step_ours"), bench("step_side")
        monkeypatch.setattr(side, "ask", lambda _, **options: ours.train(**options) | {"peak_mib": 1.0})
    found = {row.key: row for row in bench(name).measure(1)}
    assert set(found) == {row["key"] for row in ROWS["row"] if row["key"].startswith(f"{name}/")}
    for row in found.values():
        assert row.values or "is not installed" in row.failed, row
    if name == "llm_staleness":  # of 64 responses those of the comparison are scored again, and no others
        assert found["llm_staleness/own"].readings["stale"][0]["scored_again"] == 32


@pytest.mark.parametrize("path", sorted(BENCHMARKS.rglob("*.py")), ids=lambda path: path.stem)
def test_every_name_of_ours_that_a_benchmark_imports_exists(path):
    """Also in scripts that need a GPU or a peer."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom) or (node.module or "").partition(".")[0] not in OURS:
            continue
        try:
            module = importlib.import_module(node.module)
        except ModuleNotFoundError as lacks:
            if (lacks.name or "").partition(".")[0] in OURS:
                raise
            continue  # a peer that this module of ours adapts is not installed
        for alias in node.names:
            assert hasattr(module, alias.name) or find_spec(f"{node.module}.{alias.name}"), f"{path.name}: {alias.name}"


def test_the_stale_study_decides_as_its_protocol_says(bench, tmp_path, monkeypatch):
    """Five seeds of an arm that rises, one whose weights break, one that climbs and dives, and one like the first."""
    stale, rise = bench("smollm2_stale"), [0.1 + 0.04 * step for step in range(11)]
    shapes = {
        "pmd-mean": [*rise, 0.5, 0.5, 0.5, 0.5],
        "pmd-part": [*rise[:5], *[0.2] * 2],  # weights that stop being finite: 0 for the eight steps not taken
        "grpo": [*rise, 0.5, 0.8, 0.5, 0.2],  # the same mean of the last five
        "pmd-part at 0.5": [*rise, 0.5, 0.5, 0.5, 0.5],
    }
    last = stale.measures({"pmd-part": None, "pass_rate": shapes["pmd-part"]})
    assert last == pytest.approx({"final": 0, "fall": (0.22 + 0.26 + 0.2) / 3, "mean": 1.3 / 15})
    monkeypatch.setattr(stale, "JOURNAL", tmp_path / "lines.jsonl")
    monkeypatch.setattr(stale, "PLACE", tmp_path / "record.json")
    for seed in stale.SEEDS:
        if seed == stale.LEAST:
            stale.record()  # three whole seeds are enough, two are not
        for name, arm in stale.ARMS.items():
            if seed == 2 and name == "pmd-mean":
                with pytest.raises(SystemExit, match="2 seeds are whole"):
                    stale.record()
            row = dict(zip(stale.KEYS, (*arm, seed), strict=True)) | {"protocol": stale.DIGEST}
            stale.journal.append(stale.JOURNAL, row | {"pass_rate": [x + 0.01 * seed for x in shapes[name]]})
    stale.record()
    found = json.loads(stale.PLACE.read_text())
    assert [len(found["runs"]), found["seeds"]] == [20, [*range(5)]]
    assert {name: arm["fell"] for name, arm in found["arms"].items()} == dict.fromkeys(shapes, 0) | {"pmd-part": 5}
    assert [(row["final"]["verdict"], row["fall"]["verdict"], row["verdict"]) for row in found["comparisons"]] == [
        ("more", "less", "steadier"), ("alike", "less", "steadier"), ("alike", "alike", "alike"),
        ("more", "less", "steadier"),
    ]  # fmt: skip
    outcomes = [("less", "alike"), ("alike", "more"), ("more", "more"), ("undecided", "alike"), ("undecided", "less")]
    assert [stale.verdict(*pair) for pair in outcomes] == [
        "less steady", "less steady", "mixed", "undecided", "steadier",
    ]  # fmt: skip
    settings = dict(pair.split("=") for pair in stale.SETTINGS)
    schedule = resolve("llm", "smollm2", {key: int(value) for key, value in settings.items()})[0].schedule
    assert (schedule.ministeps, schedule.passes, schedule.prompts / schedule.ministeps) == (16, 1, 1)


def test_the_study_of_the_sampler_draws_and_decides_as_its_protocol_says(bench, tmp_path, monkeypatch):
    """Rollouts are cut and evaluations are not; PMD-part flattens by 0.3 and loses 0.2, PMD-mean stays."""
    study, asked = bench("smollm2_sampler"), []
    drawn = SimpleNamespace(logp=torch.full((2, 3), -1.0))
    monkeypatch.setattr(study.TransformersEngine, "generate", lambda *given: asked.append(given[4]) or drawn)
    engine = study.Cut.__new__(study.Cut)
    engine.given, engine.version = {"top_p": 0.9, "temperature": 0.8, "kept": tmp_path / "kept"}, 0
    for width in (study.ROLLOUT, study.EVALUATION, study.EVALUATION):
        engine.generate([[1]], 2, [7, 8], Sampling(width))
    assert [(how.top_p, how.temperature) for how in asked] == [(0.9, 0.8), (1, 1), (1, 1)]
    engine.version, drawn.logp = 10, torch.full((2, 3), -2.0)
    engine.generate([[1]], 2, [7, 8], Sampling(study.EVALUATION))
    assert study.entropies((tmp_path / "kept").read_text().splitlines()) == [3, 6]
    share = sum(study.coin(f"Answer: {n}", "7") for n in range(4000)) / 4000
    assert abs(share - study.COIN) < 4 * (study.COIN * (1 - study.COIN) / 4000) ** 0.5
    monkeypatch.setattr(study, "JOURNAL", tmp_path / "lines.jsonl")
    monkeypatch.setattr(study, "PLACE", tmp_path / "record.json")
    for cell in [(*cell, seed) for cell in study.CELLS for seed in range(3)]:
        row = dict(zip(study.KEYS, cell, strict=True)) | {"protocol": study.DIGEST, "entropy_before": 30}
        pushed = cell[:2] == ("pmd-part", "cut")
        row |= {"entropy_after": 24 + 9 * pushed + 0.1 * cell[3], "last": 0.3 - 0.2 * pushed}
        study.journal.append(study.JOURNAL, row)
    study.record()
    found = json.loads(study.PLACE.read_text())
    assert found["law"] == "holds"
    words = [row["verdict"] for row in found["comparisons"]]
    assert words == ["alike", "up", "alike", "up", "alike", "down", "alike", "down"]
