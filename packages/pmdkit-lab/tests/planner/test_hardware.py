"""Accelerators: how they are asked for, and numbers of a data sheet that must agree with one another."""

import pytest

from pmdkit.errors import UsageError
from pmdkit_lab.planner.hardware import GPUS, cluster


@pytest.mark.parametrize(
    ("text", "tensor"),
    [("H100", 1), ("0xH100", 1), ("8xH10", 1), ("-8xH100", 1), ("6xH100", 4), ("32xH100", 16), ("8xH100", 0)],
)
def test_what_cannot_be_is_refused(text, tensor):
    with pytest.raises(UsageError):
        cluster(text, tensor)


def test_wires_are_slower_between_machines():
    for gpu in GPUS.values():
        assert gpu.network <= gpu.link < gpu.bandwidth  # 72 GB200 are on one NVLink
        assert cluster(f"8x{gpu.name}").wire == gpu.link
        assert cluster(f"16x{gpu.name}").wire == gpu.network
    assert cluster("16xH100", 4).engines == 4
