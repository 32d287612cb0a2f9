"""What the study of adaptive temperatures left open: `python benchmarks/adaptive_follow_up.py [CELL...]`.

Stated before the first run. (1) "pmd-mean, 122 pairs": the suggested rule and the two rules with the largest gain under
PMD-mean in the bandit, each at the value that the study tuned, against its tuned fixed tau, on 122 seeds that chose
nothing. The margin is MARGIN: "no difference" if the 90 % interval of the paired gain lies within it, else "better" or
"worse" by Holm's procedure at 5 %, else "undecided". (2) A KL budget under PMD-part, with the law of PMD-mean that the
study used and with the law of PMD-part itself: again in the bandit on fresh seeds, and in a second tier, the toy task
sort. Its arms are tuned over four values each, as in the study; the learning rate is the study's and is tuned for none.

The journal is written after each run; the same command goes on where it stopped. Some 12, 4 and 12 minutes of one CPU.
"""

import json
import sys
from pathlib import Path

import numpy as np

from pmdkit.observe import files
from pmdkit.sweeps import record
from pmdkit_lab.studies import adaptive
from pmdkit_lab.studies.adaptive import FIXED, FIXED_TAUS, GENTLER, POOL, SUGGESTED, TOY, StudyCell, rule
from pmdkit_lab.studies.journal import read_journal
from pmdkit_lab.studies.race import verdict

FRESH = 100  # first seed of the comparisons: the study has used 0 to 29
MARGIN = 0.01  # in mean pass rate over training; a smaller gain is not worth an option
BUDGETS = (2.0, 0.7, 0.25, 0.08)
PART = {
    FIXED: GENTLER[FIXED],
    "kl-budget": rule("kl-budget", "budget", BUDGETS),
    "kl-budget, own law": rule("kl-budget", "budget", BUDGETS, method="pmd-part"),
}
CELLS = {
    "pmd-mean, 122 pairs": StudyCell(
        "bandit",
        "shared-features",
        "pmd-mean",
        POOL,
        122,
        0,
        {
            FIXED: FIXED_TAUS[1:2],
            "pass-rate": rule("pass-rate", "scale", (0.15,), floor=0.1),
            "pass-rate, pooled": rule("pass-rate", "scale", (0.15,), floor=0.01, estimate="pool"),
            "pass-rate 0.14, untuned": SUGGESTED,
        },
        first=FRESH,
    ),
    "pmd-part, laws": StudyCell("bandit", "shared-features", "pmd-part", POOL, 30, 5, PART, first=FRESH),
    "sort, pmd-part": StudyCell("toy", "sort", "pmd-part", TOY, 10, 2, PART, block=5, first=FRESH),
}
STATED = {"margin": MARGIN, "level": adaptive.SURE}
PLACE = Path(__file__).parent / "results"


def study(name: str, place: Path) -> None:
    """Do the missing runs of a cell, then write its record."""
    cells = {name: CELLS[name]}
    path = place / f"adaptive-tau-{name.replace(', ', '-').replace(' ', '-')}.json"
    journal = path.with_suffix(".jsonl")
    done = read_journal(journal)

    def make(wanted: list[adaptive.Job]) -> None:
        for job in wanted:
            if job.key not in done:
                found = adaptive.run_job(cells[job.cell], job.tau, job.seed, place)
                done[job.key] = found
                with open(journal, "ab") as file:
                    file.write(json.dumps({"key": job.key, **found}).encode() + b"\n")
                print(f"{job.cell}, {job.arm}, seed {job.seed}: {found['auc']:.4f}", file=sys.stderr, flush=True)

    make(adaptive.tuning(cells))
    best = adaptive.tuned(cells, done)
    make(adaptive.comparison(cells, best))
    found = adaptive.summary(cells, best, done) | {"about": " ".join(__doc__.split()), "stated": STATED}
    found["outcome"] = outcomes(found["runs"], found["tables"][name])
    files.replace(path, (json.dumps(found, separators=(",", ":")) + "\n").encode())
    journal.unlink()


def outcomes(runs: list[dict[str, object]], rows: list[adaptive.Row]) -> dict[str, adaptive.Row]:
    """arm -> its gain over the fixed tau, and the verdict by the stated margin and level."""
    values = {row["arm"]: np.array([run["auc"] for run in runs if run["arm"] == row["arm"]], float) for row in rows}
    tried = [row for row in rows if row["p"] is not None]
    return {
        row["arm"]: record.rounded(verdict(values[FIXED], values[row["arm"]], row["p"], len(tried), STATED))
        for row in tried
    }


if __name__ == "__main__":
    for name in sys.argv[1:] or CELLS:
        study(name, PLACE)
