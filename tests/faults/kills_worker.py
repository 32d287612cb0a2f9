"""The process that forks and kills: `python -m faults.kills_worker FOLDER ...`, in tests/. One line of JSON per plan.

FOLDER share 0 2 50       plans 0, 2, 4, ... until 50 kills fell, and enough of them in each phase
FOLDER plan 37            one plan again, with what was done when
FOLDER bug NAME ...       for each planted bug, plans until it is caught; plan 37 of it: bug NAME=37
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

os.environ |= {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}

from . import runs
from .fork_server import become_server
from .kills import PHASES, plan, plans
from .kills_harness import Harness, Report, phases_of
from .sabotage import BUGS


def main(root: Path, mode: str, *given: str) -> None:
    """Import everything once, then do as the arguments say."""
    inputs = root / "inputs"
    inputs.mkdir(parents=True)
    runs.prepare(inputs)
    warm_up(root, inputs)
    become_server()
    if mode == "bug":
        for name in given:
            say(hunt(root, inputs, name))
        return
    harness = Harness(root, inputs)
    if mode == "plan":
        say(harness.carry_out(plan(int(given[0]))))
        return
    share, shares, kills = map(int, given)
    for report in until_enough(harness, share, shares, kills):
        say(report)


def warm_up(root: Path, inputs: Path) -> None:
    """A run of each tier in this process: what is imported late, or made at first use, is there for all children."""
    import pmdkit.llm.evaluate
    import pmdkit.llm.starter.warm_start

    pmdkit.llm.starter.warm_start.SAVE = 5  # steps; phase 0 of a run this small would be over before its first save
    pmdkit.llm.evaluate.ROWS = 4  # responses; an evaluation this small would be written all at once
    for name in ("bandit", "toy-taught", "llm", "llm-lag", "llm-starter"):
        runs.go(runs.CASES[name], inputs, root / "warm" / name, resume=False)


def until_enough(harness: Harness, share: int, shares: int, kills: int) -> Iterator[Report]:
    """Every `shares`-th plan until so many kills fell, a tenth of them in each phase; or until something breaks."""
    fell: Counter[str] = Counter()
    for one in islice(plans(), share, None, shares):
        report = harness.carry_out(one)
        yield report
        for hit in report.kills:
            fell.update(["all", *phases_of(hit)])
        enough = fell["all"] >= kills and all(fell[phase] >= kills / 10 for phase in PHASES)
        if enough or report.broken is not None or one.number > 10 * kills:
            return


def hunt(root: Path, inputs: Path, name: str) -> Report:
    """Plans with a planted bug until one of them shows it; all kills together, in the last plan's report."""
    name, _, only = name.partition("=")
    bug, kills = BUGS[name], []
    harness = Harness(root, inputs, bug.plant)
    for one in [plan(int(only), bug.cases)] if only else plans(bug.cases):
        report = harness.carry_out(one)
        kills += report.kills
        if report.broken is not None or only or len(kills) >= bug.most:
            report.kills = kills
            return report
    raise AssertionError("plans have no end")


def say(report: Report) -> None:
    """One line, at once."""
    print(json.dumps(vars(report)), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
