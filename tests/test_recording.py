"""A recorded step: its file comes back exactly and a damaged one says so; what the recorder keeps of an update."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from pmdkit.bandit.learner import BanditLearner
from pmdkit.errors import UsageError
from pmdkit.loop import ministeps
from pmdkit.objectives import Groups, PMDMean, credit
from pmdkit.process_group import ProcessGroup
from pmdkit.recording import Recorder, Recording, encode, gather_rows
from pmdkit_lab.dumps.recorded import decode, unpack

NUMBERS = {
    torch.float64: st.floats(allow_nan=True, allow_infinity=True),
    torch.float32: st.floats(width=32, allow_nan=True, allow_infinity=True),
    torch.int64: st.integers(-(2**63), 2**63 - 1),
    torch.bool: st.booleans(),
}


def same(x, y):
    """Bit for bit, but for the sign of a zero and the payload of a NaN."""
    assert x.dtype == y.dtype
    assert x.shape == y.shape
    if x.dtype.is_floating_point:
        return torch.equal(torch.isnan(x), torch.isnan(y)) and torch.equal(torch.nan_to_num(x), torch.nan_to_num(y))
    return torch.equal(x, y)


@st.composite
def tensors(draw, shape=None):
    dtype = draw(st.sampled_from(list(NUMBERS)))
    shape = draw(st.sampled_from([(1,), (5,), (2, 3)])) if shape is None else shape
    few = draw(st.booleans())  # of few different values, as rewards and masses are
    count = torch.Size(shape).numel()
    values = draw(st.lists(NUMBERS[dtype], min_size=1 if few else count, max_size=1 if few else count))
    return torch.tensor((values * count)[:count], dtype=dtype).view(shape)


@st.composite
def recordings(draw):
    rows, columns = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    if draw(st.booleans()):  # tokens from the beginning of the row, as all tiers have them
        lengths = draw(st.lists(st.integers(1, columns), min_size=rows, max_size=rows))
        mask = torch.arange(columns) < torch.tensor(lengths)[:, None]
    else:
        mask = draw(tensors((rows, columns))).to(torch.bool)
    found = {"reward": draw(tensors((1, rows))), "prompts": draw(tensors((1, 2))), "logp_seen": draw(tensors((rows,)))}
    for name, count in (("logp_old", rows), ("responses", rows), ("logp_after", draw(st.integers(1, rows)))):
        x = draw(tensors((count, columns)))
        found[name] = torch.where(mask[:count], x, torch.zeros((), dtype=x.dtype))
    return Recording({"step": 3, "name": draw(st.text())}, mask, found)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(recordings())
def test_a_recording_comes_back_and_is_written_to_the_same_bytes(recording):
    data = encode(recording)
    found = unpack(data, "here")
    assert {k: v for k, v in found.about.items() if k not in ("format", "columns")} == recording.about
    assert torch.equal(found.mask, recording.mask)
    assert found.tensors.keys() == recording.tensors.keys()
    for name, tensor in recording.tensors.items():
        assert same(found[name], tensor), name
    assert encode(Recording(recording.about, found.mask, found.tensors)) == data


@pytest.fixture
def small():
    mask = torch.tensor([[True, True], [True, False]])
    logp = torch.tensor([[-1.5, -0.25], [-0.5, 0.0]])
    return Recording({"step": 1}, mask, {"logp_old": logp, "reward": torch.tensor([[1.0, 0.0]])})


@pytest.mark.parametrize(
    "damage",
    [
        *(lambda data, cut=cut: data[:cut] for cut in (0, 5, 40, -1, -9)),
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: data.replace(b'\\"format\\":1', b'\\"format\\":9'),
    ],
)
def test_a_damaged_file_and_another_version_are_refused(small, damage):
    with pytest.raises(UsageError, match="here"):
        decode(damage(encode(small)), "here")


# What the recorder keeps of a step: each row's log-probabilities before its update, without another forward pass.

P, G, T = 4, 3, 2


def two_passes(hook):
    """A bandit learner after a step of two ministeps of two passes, and the step's rollouts."""
    rng = torch.Generator().manual_seed(1)
    learner = BanditLearner(torch.randn(P, 5, generator=rng).log_softmax(1), update="gradient", passes=2)
    learner.on_logp = hook
    rollouts = learner.rollout(torch.arange(P), G, seed=0)
    reward = torch.randint(0, 2, (P, G), generator=rng).double()
    batch = credit(PMDMean(), Groups(reward, rollouts.mass), rollouts.logp_old, rollouts.mask)
    for part in ministeps(rollouts, batch, 2):
        learner.update(PMDMean(), *part)
    return learner, rollouts


def test_the_first_pass_is_reported():
    """Two ministeps of two passes: the numbers of the first pass, which are those of the reported loss."""
    recorder = Recorder(1, None)
    assert recorder.logp_seen(two_passes(None)[1]) is None
    learner, rollouts = two_passes(recorder.on_logp)
    assert torch.equal(recorder.logp_seen(rollouts), rollouts.logp_old)  # contexts are independent: nothing moved yet
    assert not torch.equal(learner.logp(rollouts), rollouts.logp_old)


def test_shares_of_several_processes_are_put_together():
    rollouts = two_passes(None)[1]
    mine, other = rollouts.logp_old.sum(1), rollouts.logp_old.sum(1)
    mine, other = mine.clone(), other.clone()
    mine[6:], other[:6] = torch.nan, torch.nan

    class Two(ProcessGroup):
        size = 2

        def __init__(self):
            self.others = iter([torch.tensor([1]), other])  # axes, numbers

        def gather(self, tensor):
            return [tensor, next(self.others)]

    assert torch.equal(gather_rows(mine, rollouts, Two()), rollouts.logp_old.sum(1))
    assert torch.equal(gather_rows(None, rollouts, Two())[6:], other[6:])
