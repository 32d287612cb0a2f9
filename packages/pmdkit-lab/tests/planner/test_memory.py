"""Memory: sizes from configurations, shares of FSDP2, and what an engine has room for."""

from dataclasses import replace

import pytest

from pmdkit.resolve import resolve
from pmdkit_lab.planner.memory import GIB
from pmdkit_lab.planner.workload import sizes_of

from .conftest import SEVEN


@pytest.mark.parametrize("name", ["qwen2.5-7b", "qwen3-30b-a3b"])
def test_sizes_are_read_from_the_configuration(name):
    spec, _ = resolve("llm", name, {})
    found = sizes_of(spec)
    if name == "qwen2.5-7b":
        biases_and_norms = found.weights - SEVEN.weights
        assert 0 < biases_and_norms < 1e-4 * found.weights
        assert replace(found, weights=0, active=0, trained=0) == replace(SEVEN, weights=0, active=0, trained=0)
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
