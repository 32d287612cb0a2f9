"""Memory: sizes from configurations, shares of FSDP2, and what an engine has room for."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pmdkit.resolve import resolve
from pmdkit_lab.planner.cluster import cluster
from pmdkit_lab.planner.memory import GIB
from pmdkit_lab.planner.predict import Prediction
from pmdkit_lab.planner.workload import lengths, sizes_of, work_of
from pmdkit_lab.rehearsal.accepted import SHIPPED

from .conftest import SEVEN

# GiB of the fullest process at the fullest moment of each phase of the accepted rehearsals, whose name is a recipe with
# its options; all layers and processes, H100. A rollout of the embedded engine is of responses at full length.
PAGE = (Path(__file__).parents[4] / "docs" / "use" / "plan.md").read_text("utf-8")
REHEARSED = {
    name.rpartition(" ")[0]: {
        phase: max(rank[phase]["memory"]["kinds"][""] for rank in record["ranks"].values()) / GIB
        for phase in ("rollout", "score", "update")
    }
    for name, record in json.loads(SHIPPED.read_text("utf-8")).items()
}


@pytest.mark.parametrize("name", REHEARSED)
def test_the_plan_is_near_the_rehearsal(name):
    """Of every shipped recipe, by phase."""
    recipe, *options = name.split()
    spec, _ = resolve("llm", recipe, {key: int(size) for key, size in (option.split("=") for option in options)})
    shape, place = lengths("direct", spec.rollout.width), cluster(f"{spec.parallel.processes}xH100")
    planned, rehearsed = Prediction(sizes_of(spec), work_of(spec), shape, place).memory.totals, REHEARSED[name]
    assert planned == pytest.approx(rehearsed, rel=0.15)
    if not name.startswith(("starter-moe", "calculator")) and name != "starter":  # some MiB each
        words = [f"{rehearsed[phase]:.1f}, planned {planned[phase]:.1f}" for phase in rehearsed]
        assert f"| {spec.parallel.processes} | {' | '.join(words)} |" in PAGE


def test_every_recipe_with_a_model_is_rehearsed():
    recipes = {path.stem for path in (Path(__file__).parents[4] / "llm" / "recipes").glob("*.toml")}
    assert {name for name in REHEARSED if " " not in name} == recipes - {"own"}


@pytest.mark.parametrize("name", ["qwen2.5-7b", "qwen3-30b-a3b"])
def test_sizes_are_read_from_the_configuration(name):
    spec, _ = resolve("llm", name, {})
    found = sizes_of(spec)
    if name == "qwen2.5-7b":
        biases_and_norms = found.weights - SEVEN.weights
        assert 0 < biases_and_norms < 1e-4 * found.weights
        assert found.silu_bytes == 2 * 28 * 18_944
        counted = {"weights": 0, "active": 0, "trained": 0, "silu_bytes": 0}
        plain = replace(found, **counted, kept_bytes=found.kept_bytes + found.silu_bytes)
        assert plain == replace(SEVEN, **counted)
    else:
        assert found.experts == 48 * 128 * 3 * 2048 * 768
        assert (found.choices, found.chosen) == (128, 8)
        assert found.weights - found.experts * 120 // 128 == found.active


def test_shares_and_copies(paper):
    copies = replace(paper, work=replace(paper.work, fsdp2=False))
    for part in ("weights", "optimizer", "gradients"):
        assert copies.memory.phases["update"][part] == pytest.approx(32 * paper.memory.phases["update"][part])
    assert copies.memory.phases["update"]["weights"] == pytest.approx(4 * SEVEN.weights / GIB)
    assert paper.memory.fits
    assert not copies.memory.fits


def test_an_optimizer_keeps_its_own_number_of_moments(paper):
    """Muon one of each weight and AdamW's second of embedding and head, SGD none; an own class counts as Adam."""
    held = {name: replace(paper.work, optimizer=name).moments(SEVEN) for name in ("adamw", "sgd", "muon", "my.py:Mine")}
    ends = SEVEN.lookup + SEVEN.vocabulary * SEVEN.dimension
    assert held["adamw"] == held["my.py:Mine"] == 2 * SEVEN.weights
    assert held["sgd"] == 0
    assert held["muon"] == SEVEN.weights + ends


def test_a_replica_on_each_machine_takes_memory_and_gathers_inside(paper):
    """Four machines with a replica each; between them go 2 x 3/4 of each process's eighth of the gradients, once."""
    copies = replace(paper, work=replace(paper.work, replicas=4))
    for part in ("weights", "optimizer", "gradients"):
        assert copies.memory.phases["update"][part] == pytest.approx(4 * paper.memory.phases["update"][part])
    inside = replace(paper, cluster=replace(paper.cluster, count=8), work=replace(paper.work, prompts=128))
    gpu, updates = paper.cluster.gpu, paper.work.ministeps
    between = updates * 2 * 4 * SEVEN.trained / 8 * 3 / 4 / (gpu.network * paper.efficiency.collective)
    assert copies.update.wire == pytest.approx(inside.update.wire + between)


def test_tensor_parallel_engines_share_weights_and_cache(paper):
    pair = replace(paper, cluster=replace(paper.cluster, tensor=2))
    whole, half = paper.memory.phases["rollout"], pair.memory.phases["rollout"]
    assert half["engine weights"] == pytest.approx(whole["engine weights"] / 2)
    assert pair.memory.room > 2 * paper.memory.room


def test_the_cache_takes_what_is_left_and_a_whole_sequence_must_fit(paper):
    many = replace(paper, work=replace(paper.work, prompts=8192))
    assert many.memory.totals["rollout"] == pytest.approx(many.memory.limit)
    assert many.generation.queue > 0
    assert many.memory.fits
    wide = replace(paper, work=replace(paper.work, longest=10_000_000))
    assert not wide.memory.fits
