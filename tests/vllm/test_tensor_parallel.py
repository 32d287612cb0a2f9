"""Two gloo processes under vLLM's external launcher: one engine cut over both, or one engine in each."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.vllm
HERE = Path(__file__).parent
SECONDS = 240


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def run(tensor_parallel: int) -> list[dict]:
    told = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(HERE / "tensor_ranks.py"), str(rank), str(tensor_parallel)],
            env=os.environ | told | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = [rank.communicate(timeout=SECONDS) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], said[0][1][-2000:] + said[1][1][-2000:]
    return [json.loads(out) for out, _ in said]  # exactly one JSON value: vLLM prints nothing there


@pytest.mark.nightly
def test_two_processes_are_one_engine():
    one, other = run(2)
    assert one["rows"] == other["rows"]
    assert one["moved"] == other["moved"]
    assert one["rows"] != one["moved"]
    assert max(one["error"], other["error"]) < 2e-5
    assert one["together"] == 2


@pytest.mark.nightly
def test_two_processes_have_an_engine_each():
    one, other = run(1)
    assert one["rows"] != other["rows"]
    assert max(one["error"], other["error"]) < 2e-5
    assert one["together"] == 2
