"""Accelerators: how they are asked for, and numbers of a data sheet that must agree with one another."""

import pytest

from pmdkit.errors import UsageError
from pmdkit_lab.planner.hardware import GPUS, cluster


@pytest.mark.parametrize(
    ("text", "tensor", "expert", "word"),
    [
        ("H100", 1, 1, "32xH100"),
        ("xH100", 1, 1, "32xH100"),
        ("0xH100", 1, 1, "at least 1"),
        ("8xH10", 1, 1, "did you mean 'H100'"),
        ("-8xH100", 1, 1, "32xH100"),
        ("1.5xH100", 1, 1, "32xH100"),
        ("6xH100", 4, 1, "--tp is 4"),
        ("32xH100", 16, 1, "at most 8"),
        ("8xH100", 0, 1, "--tp is 0"),
        ("8xH100", 1, 3, "3"),
        ("8xH100", 4, 2, "multiple of --tp"),
    ],
)
def test_what_cannot_be_is_refused(text, tensor, expert, word):
    with pytest.raises(UsageError, match=word):
        cluster(text, tensor, expert)


def test_wires_are_slower_between_machines():
    for gpu in GPUS.values():
        assert gpu.network <= gpu.link < gpu.bandwidth  # 72 GB200 are on one NVLink
        assert cluster(f"8x{gpu.name}").wire == gpu.link
        assert cluster(f"16x{gpu.name}").wire == gpu.network
    assert cluster("16xH100", 4).engines == 4
