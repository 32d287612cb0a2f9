"""Generation: limits by hand, and a discrete-event simulation as oracle of the closed form."""

from dataclasses import replace

import numpy as np
import pytest

from pmdkit.planner.hardware import PRACTICE, Cluster, Efficiency, cluster
from pmdkit.planner.timing import EngineSize, decoding, generation, peak_tokens, scoring, token_flops, update
from pmdkit.planner.workload import ResponseLengths, lengths

from .conftest import PAPER, SEVEN, dense
from .simulation import simulate

PERFECT = Efficiency(bandwidth=1, products=1, training=1, step_seconds=0, reduce_seconds=0, memory=1)
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


def test_while_memory_binds_more_rows_cost_nothing_but_their_cache():
    engine = EngineSize(replace(SEVEN, kv_bytes=0), cluster("1xH100"), PERFECT)
    assert decoding(engine, constant(50), 1, 1, 0, 1e9)[0] == decoding(engine, constant(50), 100, 1, 0, 1e9)[0]


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
    split = EngineSize(replace(MOE, kv_bytes=0), cluster("8xH100", expert=8), PERFECT)
    assert split.weight_bytes() == pytest.approx(2 * (1_200 + 28_800 / 8))


def test_a_step_is_never_shorter_than_its_overhead():
    engine = EngineSize(replace(MOE, kv_bytes=0), cluster("1xH100"), replace(PERFECT, step_seconds=0.002))
    assert decoding(engine, constant(10), 1, 1, 0, 1e9)[0] == pytest.approx(0.02)


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


def test_less_room_is_never_faster():
    found = lengths("direct", 500)
    engine = EngineSize(SEVEN, cluster("1xH100"), Efficiency())
    peak = peak_tokens(found, 100, 50)
    seconds = [decoding(engine, found, 100, 1, 50, share * peak)[0] for share in (0.05, 0.1, 0.2, 0.4, 1.0)]
    assert seconds == sorted(seconds, reverse=True)


def test_a_larger_rollout_batch_amortises_its_longest_response():
    """Time per response falls with rows, and less than in proportion: the tail is paid once, the tokens are not."""
    found = lengths("direct", 2000)
    engine = EngineSize(SEVEN, cluster("8xH100"), Efficiency())
    each = [generation(engine, found, rows, 170, 1e12).seconds / rows for rows in (8, 64, 512, 4096)]
    assert each == sorted(each, reverse=True)
    assert each[0] / each[-1] < 512


# Updates: 6 N by hand, what checkpointing adds, what the wire adds, and published throughputs.

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
