"""The file of a recorded step: everything comes back exactly, and a damaged one says so."""

import math

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from safetensors import safe_open

from pmdkit.errors import UsageError
from pmdkit.replay.recording import KEY, Recording, decode, encode, narrow, widen

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


@settings(max_examples=200, deadline=None)
@given(tensors())
def test_narrowing_loses_nothing(x):
    stored, how = narrow(x.numpy())
    assert stored.nbytes <= x.numel() * x.element_size()
    assert same(widen(torch.from_numpy(stored), how), x)


@pytest.mark.parametrize("number", [0.1, math.nan, -2, True])
def test_equal_numbers_are_stored_as_one(number):
    assert narrow(np.full((2, 3), number))[0].size == 1


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


@settings(max_examples=100, deadline=None)
@given(recordings())
def test_a_recording_comes_back_and_is_written_to_the_same_bytes(recording):
    data = encode(recording)
    found = decode(data, "here")
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


@pytest.mark.parametrize("cut", [0, 5, 40, -1, -9])
def test_a_truncated_file_says_so(small, cut):
    with pytest.raises(UsageError, match=r"here .*truncated"):
        decode(encode(small)[:cut], "here")


def test_one_flipped_bit_is_noticed(small):
    data = bytearray(encode(small))
    data[-1] ^= 1
    with pytest.raises(UsageError, match="does not match its checksum"):
        decode(bytes(data), "here")


def test_a_changed_header_is_noticed(small):
    data = encode(small).replace(b'\\"step\\":1', b'\\"step\\":2')
    with pytest.raises(UsageError, match="does not match its checksum"):
        decode(data, "here")


def test_another_version_is_named(small):
    data = encode(small).replace(b'\\"format\\":1', b'\\"format\\":9')
    with pytest.raises(UsageError, match="a recording of format 9; this pmdkit reads format 1"):
        decode(data, "here")


def test_other_programs_read_it(small, tmp_path):
    path = tmp_path / "step-1.safetensors"
    path.write_bytes(encode(small))
    with safe_open(path, "pt") as file:
        assert list(file.metadata()) == [KEY]
        assert torch.equal(file.get_tensor("logp_old"), torch.tensor([-1.5, -0.25, -0.5]))
