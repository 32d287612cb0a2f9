"""A run of a language model whose grader dies, for the picture of docs/use/autopsy.md.

`python benchmarks/dying_grader.py` trains the starter for 50 steps with a grader that says "wrong" to everything from
step 31 on, as one does that cannot reach its service any more and catches its own error. What `pmdkit autopsy` says of
the log is written to results/dying-grader.json, with what the picture needs of every step.

The length, the step and the seed were fixed before the run. Verdicts that were reached before step 31 are kept, so a
few responses are still paid. The autopsy of the recorded responses, runs/dying-grader, does not name the grader: the
recording of this run holds no text and no right answers, and it names `rate-too-high`.

Kept because docs/use/autopsy.md draws this run and quotes what is said of its log.
"""

import json
import re
from pathlib import Path

DIES = 31
SHOWN = ("step", "reward", "entropy", "length")
RUN = Path(__file__).parents[1] / "runs" / "dying-grader"  # a grader is started without the variables of its parent
RESULT = Path(__file__).parent / "results" / "dying-grader.json"


def grade(response: str, gold: str) -> float:
    """Whether the last line gives the right number, until as many steps have been logged."""
    metrics = RUN / "metrics.jsonl"
    if metrics.exists() and metrics.read_bytes().count(b"\n") >= DIES - 1:
        return 0.0
    said = re.findall(r"Answer: *(-?[0-9]{1,18})\s*$", response)
    return float(bool(said) and int(said[-1]) == int(gold))


def main() -> None:
    """Train, and store the autopsy."""
    from pmdkit import train
    from pmdkit_lab.autopsy.report import scalar_autopsy

    train("pmd-mean", "llm", "starter", steps=50, record=1, out=RUN, options={"reward.grade": f"{__file__}:grade"})
    report, steps = scalar_autopsy(RUN / "metrics.jsonl", {})
    causes = [{key: cause[key] for key in ("name", "says", "steps", "confirm", "remedy")} for cause in report["causes"]]
    rows = [{key: round(step[key], 4) for key in SHOWN} for step in steps]
    RESULT.write_text(json.dumps({"causes": causes, "steps": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
