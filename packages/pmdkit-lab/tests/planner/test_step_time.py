"""Generation: limits by hand, and a discrete-event simulation as oracle of the closed form."""

from dataclasses import replace

import numpy as np
import pytest

from pmdkit_lab.planner.cluster import PRACTICE, Cluster, Efficiency, cluster
from pmdkit_lab.planner.data_sheets import GPUS
from pmdkit_lab.planner.step_time import EngineSize, decoding, generation, pass_bound, pass_seconds, peak_tokens, update
from pmdkit_lab.planner.workload import ResponseLengths, lengths

from .conftest import PAPER, SEVEN
from .simulation import simulate

PERFECT = Efficiency(
    bandwidth=1, products=1, training=1, half=0, collective=1, step_seconds=0, row_seconds=0, reduce_seconds=0, memory=1
)
MOE = replace(SEVEN, weights=30_000, active=3_000, experts=28_800, choices=128, chosen=8, lookup=0)


def constant(length):
    """Every response has this many tokens."""
    return ResponseLengths(np.ones(length))


def test_one_row_reads_all_weights_for_every_token():
    """Without a prompt: T readings of the weights, and the keys and values of 0 .. T - 1 tokens."""
    engine = EngineSize(SEVEN, cluster("1xH100"), PERFECT)
    seconds, steps, waiting = decoding(engine, constant(100), 1, 1, 0, 1e12)
    weights = 2 * (SEVEN.weights - SEVEN.lookup)
    cache = SEVEN.kv_bytes * 99 * 100 / 2
    assert seconds == pytest.approx((100 * weights + cache) / 3.35e12)
    assert (steps, waiting) == (100, 0)


def test_a_large_batch_is_bound_by_products():
    engine = EngineSize(replace(SEVEN, kv_bytes=0), cluster("1xH100"), PERFECT)
    rows = 10_000
    seconds, _, _ = decoding(engine, constant(7), rows, 1, 0, 1e12)
    assert seconds == pytest.approx(7 * rows * 2 * SEVEN.products / 989e12)


def test_tensor_parallel_engines_read_a_share_each():
    whole = EngineSize(SEVEN, cluster("8xH100"), PERFECT).decode(np.ones(1), np.ones(1))
    halves = EngineSize(SEVEN, cluster("8xH100", tensor=2), replace(PERFECT, reduce_seconds=0)).decode(
        np.ones(1), np.ones(1)
    )
    sent = 2 * SEVEN.layers * 2 * SEVEN.dimension * 2 / 450e9
    assert halves - sent == pytest.approx(whole / 2)


def test_few_rows_meet_few_experts_and_many_meet_all():
    engine = EngineSize(replace(MOE, kv_bytes=0), cluster("1xH100"), PERFECT)
    one, many = engine.decode(np.array([1.0]), np.zeros(1))[0], engine.decode(np.array([300.0]), np.zeros(1))[0]
    assert one == pytest.approx(2 * (1_200 + 28_800 * 8 / 128) / 3.35e12)
    assert many == pytest.approx(2 * 30_000 / 3.35e12, rel=1e-6)


@pytest.mark.nightly
@pytest.mark.parametrize("shape", ["direct", "thinking"])
@pytest.mark.parametrize(("rows", "repeats"), [(1, 60), (8, 20), (64, 12)])
def test_closed_form_is_the_simulation_where_all_rows_start(shape, rows, repeats):
    """Four engines, heavy tails: within 1 % and four standard errors of the simulation."""
    found = lengths(shape, 400)
    engine = EngineSize(SEVEN, Cluster(cluster("4xH100").gpu, 4), Efficiency())
    told = generation(engine, found, 4 * rows, 170, 1e12)
    truth, error = simulate(engine, found, 4 * rows, 170, 1e12, repeats, seed=1)
    assert told.queue == 0
    assert told.decode == pytest.approx(truth, abs=0.01 * truth + 4 * error)


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["direct", "thinking"])
@pytest.mark.parametrize("share", [0.2, 0.4, 0.7])
def test_closed_form_is_near_the_simulation_where_rows_wait(shape, share):
    """Two engines of 60 rows, room for a share of their peak: within 15 %. Rows that must stop are not in it."""
    found = lengths(shape, 400)
    engine = EngineSize(SEVEN, Cluster(cluster("2xH100").gpu, 2), Efficiency())
    room = share * peak_tokens(found, 60, 170)
    told = generation(engine, found, 120, 170, room)
    truth, error = simulate(engine, found, 120, 170, room, repeats=5, seed=3)
    assert told.queue > 0
    assert told.decode == pytest.approx(truth, abs=0.15 * truth + 4 * error)


# Updates: 6 N by hand, what each cause adds, and the wire. Published runs: test_published.py.

H100 = GPUS["H100"]

FIXED = ResponseLengths(np.ones(1000))
ALONE = replace(PAPER, prompt=0, fsdp2=False)


@pytest.mark.parametrize(("checkpointing", "rounds"), [(False, 6), (True, 8)])
def test_six_and_eight_flops_per_weight_and_token(checkpointing, rounds):
    work = replace(ALONE, checkpointing=checkpointing)
    found = pass_seconds(SEVEN, work, FIXED, 5000, H100, PERFECT, True)
    assert found.products == pytest.approx(rounds * SEVEN.products * 5000 / (H100.flops * H100.reached))
    assert (found.experts, found.syncs) == (0, 0)


def test_backward_attention_is_five_products_for_two():
    forward = pass_seconds(SEVEN, ALONE, FIXED, 5000, H100, PERFECT, False).attention
    assert forward == pytest.approx(5000 * 4 * 28 * 3584 * 500 / (H100.flops * H100.flash))
    trained = pass_seconds(SEVEN, replace(ALONE, checkpointing=False), FIXED, 5000, H100, PERFECT, True).attention
    assert trained == pytest.approx(3.5 * forward)


def test_experts_are_slower_for_the_few_tokens_that_each_gets():
    """16 times fewer tokens in each product: as slow as a dense layer in a pass of a sixteenth."""
    half = replace(PRACTICE, half=10.0)
    tokens = 4096.0
    found = pass_seconds(MOE, ALONE, FIXED, tokens, H100, half, False)
    dense = pass_seconds(replace(SEVEN, active=1_800, lookup=0), ALONE, FIXED, tokens / 16, H100, half, False)
    assert found.experts == pytest.approx(16 * dense.products)
    alone = pass_seconds(MOE, replace(ALONE, experts_alone=True), FIXED, tokens, H100, half, False)
    assert alone.syncs - found.syncs == pytest.approx(28 * 128 * 3 * half.alone)


def test_frozen_weights_have_no_gradient_of_their_own():
    whole, adapted = (
        pass_seconds(replace(SEVEN, trained=count), ALONE, FIXED, 5000, H100, PERFECT, True).products
        for count in (SEVEN.weights, 10_000)
    )
    assert adapted / whole == pytest.approx(3 / 4)


def test_ministeps_do_not_change_the_products_and_passes_repeat_them():
    base = update(SEVEN, PAPER, FIXED, cluster("8xH100"), PRACTICE)
    twice = update(SEVEN, replace(PAPER, passes=2), FIXED, cluster("8xH100"), PRACTICE)
    finer = update(SEVEN, replace(PAPER, ministeps=64), FIXED, cluster("8xH100"), replace(PRACTICE, half=0.0))
    even = update(SEVEN, PAPER, FIXED, cluster("8xH100"), replace(PRACTICE, half=0.0))
    assert finer.compute == pytest.approx(even.compute)
    assert twice.compute == pytest.approx(2 * base.compute)
    assert finer.optimizer == pytest.approx(4 * base.optimizer)


def test_shares_are_gathered_twice_in_bfloat16_and_copies_send_one_sum_a_ministep():
    """A machine takes in what all hold through eight networks of 50 GB/s, and each of 32 lacks 31 shares."""
    work = replace(PAPER, token_budget=10_240)
    shared = update(SEVEN, work, FIXED, cluster("32xH100"), PERFECT)
    copied = update(SEVEN, replace(work, fsdp2=False), FIXED, cluster("32xH100"), PERFECT)
    assert shared.visits == 2  # 16 rows of 1,170 tokens
    assert shared.wire == pytest.approx(16 * 2 * (2 * 2 + 4) * SEVEN.weights * 31 / 32 / 400e9)
    assert copied.wire == pytest.approx(16 * 8 * SEVEN.weights * 31 / 32 / 400e9)
    assert copied.optimizer == pytest.approx(32 * shared.optimizer)


def test_updates_take_no_less_than_what_a_rehearsal_counted():
    """Half of the rehearsed tokens on an H100: bytes, products and the smallest kernels, or the host's launches."""
    counts = {
        "tokens": 2000,
        "launches": 1000,
        "memory": 2 * int(3.35e12),
        "bfloat16": int(989e12 * 0.8),
        "smallest": 4,
    }
    device = (2 + 1 + 4 * 2e-6) / 2
    assert pass_bound(counts, 1000, 7.0, H100, PRACTICE) == pytest.approx(device)
    assert pass_bound({**counts, "attention": 1}, 1000, 7.0, H100, PRACTICE) == pytest.approx(device + 7)
    assert pass_bound({**counts, "launches": 10**6}, 1000, 7.0, H100, PRACTICE) == pytest.approx(3)  # 6 us each
    where = cluster("32xH100")
    free, least = (update(SEVEN, PAPER, FIXED, where, PRACTICE, given) for given in (None, counts))
    assert (free.bound, least.compute) == (0, least.bound)
    tokens = 16 * 1170 * PAPER.ministeps
    assert least.bound == pytest.approx(device * tokens / 1000)


def test_slots_bound_the_rows_at_a_time():
    engine, wide = EngineSize(SEVEN, cluster("1xH100"), PRACTICE), lengths("direct", 400)
    free, few = (generation(engine, wide, 100, 20, 1e9, slots) for slots in (None, 10))
    assert (free.queue, few.queue) == (0, 0.9)
    assert few.decode > 2 * free.decode
