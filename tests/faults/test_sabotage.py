"""The test of the kill tests: bugs are planted, and each has to be seen within 100 kills; without one all is well."""

import sys

import pytest

from .kills_pool import WORKERS, run_all, told
from .sabotage import BUGS, CONTROL

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="children are forked and adopted as Linux does it")


def test_every_planted_bug_is_seen(tmp_path):
    """How many kills each took, and the invariant that showed it, are printed."""
    shares = [list(BUGS)[n::WORKERS] for n in range(WORKERS)]
    reports = run_all(tmp_path, [["bug", *names] for names in shares])
    found = dict(zip((name for names in shares for name in names), reports, strict=True))
    for name, report in found.items():
        seen = report["broken"][0] if report["broken"] else "not seen"
        print(f"{name:50s} {len(report['kills']):3d} kills, {seen}")
    control = found.pop(CONTROL)
    assert control["broken"] is None, told(control, CONTROL)
    unseen = [f"{name}: {len(report['kills'])} kills" for name, report in found.items() if not report["broken"]]
    assert not unseen, unseen
    assert len(found) >= 12
