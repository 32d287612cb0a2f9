"""Two gloo processes under vLLM's external launcher: one engine cut over both, or one engine in each."""

import json

import pytest

from tests.llm.ranks import run_two

pytestmark = [pytest.mark.vllm, pytest.mark.nightly]


def found(folder, tensor_parallel):
    """What the two processes found."""
    run_two("tests.vllm.tensor_ranks", folder, 400, str(tensor_parallel))
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


def test_two_processes_are_one_engine(tmp_path):
    one, other = found(tmp_path, 2)
    assert one["rows"] == other["rows"]
    assert one["moved"] == other["moved"]
    assert one["rows"] != one["moved"]
    assert max(one["error"], other["error"]) < 2e-5
    assert one["together"] == 2


def test_two_processes_have_an_engine_each(tmp_path):
    one, other = found(tmp_path, 1)
    assert one["rows"] != other["rows"]
    assert max(one["error"], other["error"]) < 2e-5
    assert one["together"] == 2
