"""Killed at random times and in every phase, also while it resumes, a run ends as if nobody had touched it.

The test of this test plants bugs: each has to be seen within 100 kills, and without one all is well.
"""

import math
import sys

import pytest

from tests.nightly import mostly_nightly

from .harness import scaled
from .kills import PHASES, WORKERS, explain_broken, run_all, table
from .sabotage import BUGS, CONTROL

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="children are forked and adopted as Linux does it")


@pytest.mark.parametrize("kills", mostly_nightly([6, 100], 6))
def test_killed_anywhere_a_run_ends_on_the_same_bits(kills, tmp_path):
    """Invariants hold after every kill; at the end the folder is that of an undisturbed run, byte for byte."""
    kills, least = scaled(kills), scaled(kills // 10)
    share = math.ceil(kills / WORKERS)
    reports = run_all(tmp_path, [["share", str(n), str(WORKERS), str(share), "0"] for n in range(WORKERS)])
    broken = [explain_broken(report) for report in reports if report["broken"]]
    assert not broken, "\n\n".join(broken)
    fell = table(reports)
    longest = max(report["lingered"] for report in reports)
    print(f"{len(reports)} runs ended on the bits of undisturbed ones; kills: {dict(fell)}")
    print(f"processes that a run had started outlived it by {longest:.3f} s at most")
    assert fell["all"] >= kills
    assert all(fell[phase] >= least for phase in PHASES), fell


@pytest.mark.nightly
def test_every_planted_bug_is_seen(tmp_path):
    """How many kills each took, and the invariant that showed it, are printed."""
    shares = [list(BUGS)[n::WORKERS] for n in range(WORKERS)]
    reports = run_all(tmp_path, [["bug", *names] for names in shares])
    found = dict(zip((name for names in shares for name in names), reports, strict=True))
    for name, report in found.items():
        seen = report["broken"][0] if report["broken"] else "not seen"
        print(f"{name:50s} {len(report['kills']):3d} kills, {seen}")
    control = found.pop(CONTROL)
    assert control["broken"] is None, explain_broken(control, CONTROL)
    unseen = [f"{name}: {len(report['kills'])} kills" for name, report in found.items() if not report["broken"]]
    assert not unseen, unseen
    assert len(found) >= 12
