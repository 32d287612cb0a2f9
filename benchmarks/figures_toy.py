"""Makes pmdkit_lab/figures/stored/toy.json from finished sweeps. By hand, not by a test; the sweeps take 20 minutes.

    python -m pmdkit_lab.studies sequence --out SEQUENCE
    python benchmarks/figures_toy.py SEQUENCE

The other curves come from benchmarks/results. Of a run it keeps what figures 4, 5 and 7 draw, four digits each.

Kept because the stored curves of pmdkit_lab/figures/training_curves.py come from it.
"""

import json
import subprocess
import sys
from pathlib import Path

from pmdkit.sweeps import record
from pmdkit_lab.figures.training_curves import METHODS
from pmdkit_lab.studies.settings import by_setting

ROOT = Path(__file__).parents[1]
OUT = ROOT / "packages" / "pmdkit-lab" / "pmdkit_lab" / "figures" / "stored" / "toy.json"
KEYS = ("pass_rate", "log_ratio_min", "response_length")
MEASURES = ("avg_at_k", "pass_at_k", "maj_at_k")


def digits(values: list[float]) -> list[float]:
    return [float(f"{value:.4g}") for value in values]


def curves(name: str) -> dict[str, object]:
    """Settings of a stored record: curves and the evaluation after training, a list per seed."""
    found = record.read(ROOT / "benchmarks" / "results" / f"{name}.json")
    settings = {}
    for label, runs in by_setting(found).items():
        settings[label] = {
            "prompts": [float(step) * runs[0]["options"]["schedule.prompts"] for step in runs[0]["curve"]["step"]],
            "seeds": [int(run["seed"]) for run in runs],
            "last": digits([run["summary"]["pass_rate_last"] for run in runs]),
            **{key: [digits(run["curve"][key]) for run in runs] for key in KEYS},
        }
    return {"env": found["env"], "settings": settings}


def deeper(sweep: Path, settings: dict[str, dict[str, object]]) -> None:
    """Adds entropy and avg@32, pass@32, maj@32 of the runs of a sweep, which the record leaves out."""
    found = by_setting(record.read(sweep / "sequence.json"))
    for label, runs in ((method, found[method]) for method in METHODS):
        entropy, measured = [], []
        for run in runs:
            folder = sweep / "runs" / run["name"]
            lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
            steps = run["curve"]["step"]
            by_step = {line["step"]: line["entropy"] for line in lines}
            entropy.append(digits([by_step[step] for step in steps]))
            command = [sys.executable, "-m", "pmdkit", "eval", str(folder), "--k", "32", "--json"]
            told = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout)
            measured.append([told[measure]["value"] for measure in MEASURES])
        settings[label] |= {"entropy": entropy, "measured": [digits(row) for row in measured]}


def main() -> None:
    stored = {"training-curves": curves("training-curves"), "tau": curves("tau"), "sequence": curves("sequence")}
    deeper(Path(sys.argv[1]), stored["sequence"]["settings"])
    speed = json.loads((ROOT / "benchmarks" / "results" / "speed.json").read_text())["runs"]
    stored["speed"] = [{key: run[key] for key in run} for run in speed]
    OUT.write_text(json.dumps({"format": 1, **stored}, separators=(",", ":")) + "\n")
    print(f"{OUT}: {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
