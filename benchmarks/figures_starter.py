"""Makes pmdkit_lab/figures/stored/starter.json from benchmarks/results/starter.json. By hand, not by a test.

    pmdkit sweep llm starter --over objective=pmd-mean,pmd-part,grpo --seeds 3 --out SWEEP

makes the runs, a quarter of an hour; SWEEP/sweep.json is that record. Four digits of what is drawn.

Kept because the stored curves of pmdkit_lab/figures/training_curves.py come from it.
"""

import json
from pathlib import Path

from pmdkit.sweeps import record
from pmdkit_lab.figures.training_curves import STARTER_METHODS
from pmdkit_lab.studies.settings import by_setting

ROOT = Path(__file__).parents[1]
OUT = ROOT / "packages" / "pmdkit-lab" / "pmdkit_lab" / "figures" / "stored" / "starter.json"
KEYS = ("pass_rate", "response_length")


def digits(values: list[float]) -> list[float]:
    return [float(f"{value:.4g}") for value in values]


def main() -> None:
    found = record.read(ROOT / "benchmarks" / "results" / "starter.json")
    settings = {}
    for label, runs in by_setting(found).items():
        settings[label] = {
            "prompts": [float(step) * runs[0]["config"]["schedule.prompts"] for step in runs[0]["curve"]["step"]],
            "seeds": [int(run["seed"]) for run in runs],
            "last": digits([run["summary"]["pass_rate_last"] for run in runs]),
            **{key: [digits(run["curve"][key]) for run in runs] for key in KEYS},
        }
    assert set(settings) == set(STARTER_METHODS)
    OUT.write_text(json.dumps({"starter": {"env": found["env"], "settings": settings}}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
