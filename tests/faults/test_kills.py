"""Killed at random times and in every phase, also while it resumes, a run ends as if nobody had touched it."""

import math
import sys

import pytest

from .kills import PHASES
from .kills_pool import WORKERS, run_all, table, told
from .scale import scaled

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="children are forked and adopted as Linux does it")


def test_killed_anywhere_a_run_ends_on_the_same_bits(tmp_path):
    """Invariants hold after every kill; at the end the folder is that of an undisturbed run, byte for byte."""
    kills, least = scaled(100), scaled(10)
    share = math.ceil(kills / WORKERS)
    reports = run_all(tmp_path, [["share", str(n), str(WORKERS), str(share)] for n in range(WORKERS)])
    broken = [told(report) for report in reports if report["broken"]]
    assert not broken, "\n\n".join(broken)
    fell = table(reports)
    longest = max(report["lingered"] for report in reports)
    print(f"{len(reports)} runs ended on the bits of undisturbed ones; kills: {dict(fell)}")
    print(f"processes that a run had started outlived it by {longest:.3f} s at most")
    assert fell["all"] >= kills
    assert all(fell[phase] >= least for phase in PHASES), fell
