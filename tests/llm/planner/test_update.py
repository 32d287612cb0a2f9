"""Updates: 6 N by hand, what checkpointing adds, what the wire adds, and published throughputs."""

from dataclasses import replace

import numpy as np
import pytest

from pmdkit.planner.hardware import PRACTICE, cluster
from pmdkit.planner.timing import scoring, token_flops, update
from pmdkit.planner.workload import ResponseLengths

from .conftest import PAPER, SEVEN, dense

FIXED = ResponseLengths(np.ones(1000))
ALONE = replace(PAPER, prompt=0, fsdp2=False)


def test_two_flops_per_weight_and_attention_to_half_of_the_sequence():
    flops = token_flops(SEVEN, FIXED, 0)
    assert flops - 2 * SEVEN.products == pytest.approx(4 * 28 * 3584 * 500)
    assert token_flops(SEVEN, ResponseLengths(np.ones(1)), 999) == token_flops(SEVEN, FIXED, 0)


@pytest.mark.parametrize(("checkpointing", "rounds"), [(False, 6), (True, 8)])
def test_six_and_eight_flops_per_weight_and_token(checkpointing, rounds):
    short = replace(SEVEN, attention=0)
    work = replace(ALONE, checkpointing=checkpointing)
    found = update(short, work, FIXED, cluster("1xH100"), PRACTICE)
    assert found.compute == pytest.approx(rounds * SEVEN.products * 8192 * 1000 / (989e12 * PRACTICE.training))
    assert found.wire == 0


def test_ministeps_do_not_change_the_products_and_passes_repeat_them():
    base = update(SEVEN, PAPER, FIXED, cluster("8xH100"), PRACTICE)
    finer = update(SEVEN, replace(PAPER, ministeps=64), FIXED, cluster("8xH100"), PRACTICE)
    twice = update(SEVEN, replace(PAPER, passes=2), FIXED, cluster("8xH100"), PRACTICE)
    assert finer.compute == pytest.approx(base.compute)
    assert twice.compute == pytest.approx(2 * base.compute)
    assert finer.optimizer == pytest.approx(4 * base.optimizer)


def test_shares_cost_three_transfers_a_visit_and_copies_one_sum_a_ministep():
    work = replace(PAPER, token_budget=10_240)
    shared = update(SEVEN, work, FIXED, cluster("32xH100"), PRACTICE)
    copied = update(SEVEN, replace(work, fsdp2=False), FIXED, cluster("32xH100"), PRACTICE)
    assert shared.visits == 2  # 16 rows of 1,170 tokens
    assert shared.wire == pytest.approx(16 * 2 * 12 * SEVEN.weights / 50e9)
    assert copied.wire == pytest.approx(16 * 8 * SEVEN.weights / 50e9)
    assert copied.optimizer == pytest.approx(32 * shared.optimizer)


def test_scoring_is_a_quarter_of_a_checkpointed_update_and_only_where_asked():
    place = cluster("8xH100")
    found = update(SEVEN, PAPER, FIXED, place, PRACTICE)
    assert scoring(SEVEN, PAPER, FIXED, place, PRACTICE) == pytest.approx(found.compute / 4)
    assert scoring(SEVEN, replace(PAPER, recompute=False), FIXED, place, PRACTICE) == 0


PUBLISHED = [
    # torchtitan benchmarks/llama3_h100_202412: Llama-3.1-8B, FSDP, 8,192 tokens, recomputes some activations
    ("8B torchtitan", dense(32, 4096, 14_336, 32, 128, 8, 128_256, tied=False), 8192, 8, False, 8 * 5762, 0.05),
    # prime-rl benchmarks/results: RL of Qwen3-4B at 65k on 8 H200, and of 0.6B at 16k on one H100
    ("4B prime-rl", dense(36, 2560, 9728, 32, 128, 8, 151_936, tied=True), 65_536, 8, True, 29_500, 0.35),
    ("0.6B prime-rl", dense(28, 1024, 3072, 16, 128, 8, 151_936, tied=True), 16_384, 1, True, 11_900, 1.3),
]


@pytest.mark.parametrize(("name", "sizes", "length", "count", "checkpointing", "measured", "within"), PUBLISHED)
def test_published_throughputs(name, sizes, length, count, checkpointing, measured, within):
    """Tokens/s of training: how far off the one constant is on models that it was not taken from."""
    shape = ResponseLengths(np.ones(length))
    work = replace(ALONE, checkpointing=checkpointing, longest=length)
    found = update(sizes, work, shape, cluster(f"{count}xH100"), PRACTICE)
    assert work.rows * length / found.seconds == pytest.approx(measured, rel=within)
