"""The processes of a group: every row is scored once, in equally many passes of about equal work, with one answer."""

import threading
import time

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import distributed as dist
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from pmdkit.hub import cached_only, fetch
from pmdkit.llm.accelerate_group import AccelerateGroup
from pmdkit.llm.engines.base import Responses, Sampling
from pmdkit.llm.engines.distributed import DistributedEngine, GenerateRequest
from pmdkit.llm.fsdp2 import shard
from pmdkit.llm.micro_batches import shard_by_tokens
from pmdkit.llm.policy import CausalPolicy
from pmdkit.llm.weights import named_weights
from pmdkit.process_group import ProcessGroup

from .conftest import build

END = 2
COSTS = st.lists(st.floats(0, 100, allow_nan=False), max_size=40)


class Of(ProcessGroup):
    """One of several processes that never speaks."""

    def __init__(self, rank, size):
        self.rank, self.size = rank, size


@given(COSTS, st.integers(1, 9))
def test_shares_are_runs_that_cover_everything(costs, size):
    runs = Of(0, size).split_by_cost(costs)
    assert len(runs) == size
    assert [item for run in runs for item in run] == list(range(len(costs)))


@st.composite
def batches(draw):
    """Prompts and responses of P groups of G, and which rows count."""
    prompts, size = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    asked = [[1] * draw(st.integers(1, 6)) for _ in range(prompts)]
    responses = [[2] * draw(st.integers(1, 9)) for _ in range(prompts * size)]
    counted = draw(st.lists(st.booleans(), min_size=prompts * size, max_size=prompts * size))
    return [prompt for prompt in asked for _ in range(size)], responses, size, counted


@pytest.mark.slow
@settings(max_examples=200)
@given(batches(), st.integers(1, 4), st.integers(1, 40), st.booleans())
def test_every_row_that_counts_is_scored_once(batch, size, budget, whole):
    """As many passes in each process, each within the budget or one row or group, the same plan wherever it is made."""
    prompts, responses, group, counted = batch
    plans = shard_by_tokens(Of(0, size), prompts, responses, group, budget, whole, counted)
    assert plans == shard_by_tokens(Of(size - 1, size), prompts, responses, group, budget, whole, counted)
    assert len({len(plan) for plan in plans}) == 1
    rows = sorted(row for plan in plans for part in plan for row in part)
    wanted = [any(counted[row - row % group :][:group]) if whole else counted[row] for row in range(len(counted))]
    assert rows == [row for row, on in enumerate(wanted) if on]
    for part in (part for plan in plans for part in plan):
        groups = {row // group for row in part}
        cost = sum(len(responses[row]) for row in part) + sum(len(prompts[one * group]) for one in groups)
        assert cost <= budget or len(part) == 1 or (whole and len(groups) == 1)
        if whole:
            assert part == [row for one in sorted(groups) for row in range(one * group, (one + 1) * group)]


class Recorded(Of):
    """Records what a process sends; the others, which come after it, send what was recorded of them."""

    def __init__(self, *others):
        super().__init__(0, 2)
        self.sent, self.others = [], others

    def gather(self, tensor):
        self.sent.append(tensor)
        return [tensor, *(other.sent[len(self.sent) - 1] for other in self.others)]


@settings(max_examples=50)
@given(st.lists(st.lists(st.integers(1, 9), max_size=4), min_size=2, max_size=4))
def test_responses_are_sent_without_padding_and_arrive_as_one_rectangle(lengths):
    """A twin pads every share to the widest row of all; a process may have no share."""
    lengths[0], shares = lengths[0] or [1], []
    for each in lengths:
        rows = [([*torch.randint(3, 9, (n - 1,)).tolist(), END], torch.rand(n).neg().tolist()) for n in each]
        shares.append(Responses.from_rows(rows, [END], 7) if rows else None)
    first = Recorded()
    DistributedEngine(None, first, END).gather(shares[0])
    others = [Recorded(first) for _ in shares[1:]]
    for share, group in zip(shares[1:], others, strict=True):
        DistributedEngine(None, group, END).gather(share)
        assert max(tensor.numel() for tensor in group.sent) <= max(1, *map(sum, lengths))
    found = DistributedEngine(None, Recorded(*others), END).gather(shares[0])
    width = max(max(each, default=0) for each in lengths)
    for name, filler in (("tokens", END), ("logp", 0.0), ("mask", False)):
        parts = [getattr(share, name) for share in shares if share is not None]
        wanted = torch.cat([F.pad(part, (0, width - part.shape[1]), value=filler) for part in parts])
        assert torch.equal(getattr(found, name), wanted)
        assert getattr(found, name).dtype == wanted.dtype
    assert found.version == 7
    assert found.ended.all()


class Drawn:
    """An engine that answers a row with its seed."""

    version = 0

    def enter(self, phase):
        pass

    def generate(self, prompts, group, seeds, sampling, progress=None):
        assert len(seeds) == len(prompts) * group
        return Responses.from_rows([([int(seed), END], [0.0, 0.0]) for seed in seeds], [END], 0)


class Counts(Of):
    """One of several processes that hears nothing from the others."""

    def broadcast_object(self, value):
        return value

    def gather(self, tensor):
        return [tensor]


@pytest.mark.parametrize(
    ("problems", "k", "size", "span"), [(30, 32, 32, 1), (8, 4, 64, 2), (33, 2, 32, 1), (1, 3, 2, 1)]
)
def test_an_evaluation_keeps_every_engine_busy(problems, k, size, span):
    """No engine has more than 1.25 times the mean or one row too many; together they draw each row once, in order."""
    seeds = np.arange(3, 3 + problems * k, dtype=np.uint64)
    request = GenerateRequest([[5]] * problems, k, seeds, Sampling(8192))
    engines = [DistributedEngine(Drawn(), Counts(rank, size), END, span=span) for rank in range(0, size, span)]
    shares = [engine.generate_share(request) for engine in engines]
    rows = [[] if share is None else share.tokens[:, 0].tolist() for share in shares]
    assert [row for some in rows for row in some] == seeds.tolist()
    assert max(map(len, rows)) <= max(1.25 * problems * k / len(engines), -(-problems * k // len(engines)))
    assert {engine.count() for engine in engines} == {size // span}


def test_a_second_replica_is_sharded_like_the_first():
    """HSDP for the last of four processes, two replicas of two shards, on a group that never speaks."""
    whole = named_weights(build("qwen2"))
    dist.init_process_group("fake", rank=3, world_size=4, store=FakeStore())
    try:
        model = shard(build("qwen2"), 4, 2, torch.device("cpu"))
        for name, weight in named_weights(model).items():
            assert weight.device_mesh.shape == (2, 2)
            assert torch.equal(weight.to_local(), whole[name].chunk(2)[1])
    finally:
        dist.destroy_process_group()


def test_scoring_leaves_no_weight_gathered():
    """The first of eight processes, after the scores of the weight-sync check and of a reference."""
    dist.init_process_group("fake", rank=0, world_size=8, store=FakeStore())
    try:
        group = Counts(0, 8)
        group.strategy, group.wrap = "fsdp2", lambda root: shard(root, 8, 1, torch.device("cpu"))
        group.gather = lambda tensor: [tensor] * 8
        policy = CausalPolicy(build("qwen2"), group, reference=True)
        for root in (policy.root, policy.reference_root):
            with torch.no_grad():
                policy.logp([[1, 2]] * 8, [torch.tensor([3, 4])] * 8, 1, torch.ones(8, 2).bool(), root=root)
            assert not [name for name, weight in root.named_parameters() if not isinstance(weight, DTensor)]
    finally:
        dist.destroy_process_group()


def test_one_process_asks_the_hub_and_the_other_waits_beyond_its_deadline():
    """Two processes as threads, whose collective is a barrier: it breaks if one comes two seconds after the other."""
    barrier, found = threading.Barrier(2), {}

    class Two(AccelerateGroup):
        def __init__(self, rank):
            self.rank = self.local_rank = rank
            self.timeout, self.device = 2.0, torch.device("cpu")

        def any_rank(self, flag):
            flags[self.rank] = flag
            barrier.wait(self.timeout)
            told = any(flags)
            barrier.wait(self.timeout)
            return told

    def ask():
        time.sleep(3)
        return cached_only.get()

    flags = [False, False]
    ranks = [threading.Thread(target=lambda rank=rank: found.update({rank: fetch(ask, Two(rank))})) for rank in (0, 1)]
    for thread in ranks:
        thread.start()
    for thread in ranks:
        thread.join()
    assert found == {0: False, 1: True}  # the second reads the cache of the first
