"""Accelerators: how they are asked for."""

import pytest

from pmdkit.errors import UsageError
from pmdkit_lab.planner.cluster import cluster


@pytest.mark.parametrize(
    ("text", "tensor"),
    [("H100", 1), ("0xH100", 1), ("8xH10", 1), ("-8xH100", 1), ("6xH100", 4), ("32xH100", 16), ("8xH100", 0)],
)
def test_what_cannot_be_is_refused(text, tensor):
    with pytest.raises(UsageError):
        cluster(text, tensor)
