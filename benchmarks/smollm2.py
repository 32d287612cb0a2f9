"""What SmolLM2 learns from sums, taken apart: `python benchmarks/smollm2.py DEVICE RUN ... --aside DEVICE RUN`.

The runs are `pmdkit llm smollm2 --seed N --out RUN`, whole folders without their checkpoints. Written to
results/smollm2.json, and printed as the table of docs/use/llm.md: by step the share of responses in the answer
format and the share of those that are right; by kind of problem the same before and after, on the fixed evaluation,
with 95 % intervals over problems. A response is in the format if it ended within its tokens and gave an answer.

Kept because docs/use/llm.md tells what it measured.
"""

import json
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

from pmdkit.run import Run
from pmdkit.stats import GradedDraws, estimate_at_k

PLACE = Path(__file__).parent / "results" / "smollm2.json"


def by_kind(path):
    """Of each kind of problem: its number, the share in the format, the share that is right with its interval."""
    found = defaultdict(lambda: defaultdict(list))
    for line in path.read_text().splitlines():
        answer = json.loads(line)
        verdict = answer["verdict"]
        found[answer["id"].rpartition("-")[0]][answer["id"]].append(
            (answer["ended"] and verdict["path"] != "none", verdict["correct"] is True)
        )
    told = {}
    for kind, problems in sorted(found.items()):
        graded = np.array(list(problems.values()), dtype=float)  # [P, k, 2]
        right = graded[..., 1]
        share = estimate_at_k(GradedDraws(right, right.astype(int)), right.shape[1], np.random.default_rng(0))[
            "avg_at_k"
        ]
        formatted = graded[..., 0].mean()
        told[kind] = {
            "problems": len(graded),
            "in_format": round(float(formatted), 3),
            "right": [round(float(x), 3) for x in (share.value, share.low, share.high)],
            "right_given_format": round(float(right.mean() / formatted), 3) if formatted else None,
        }
    return told


def record(device, path):
    """One run."""
    run = Run(path)
    spec = run.spec
    rows, last = run.metrics, spec.schedule.steps
    size = spec.schedule.prompts * spec.schedule.group
    formatted = [size - row["unanswered"] - row["cut_off"] for row in rows]
    examples = {}
    for step in (0, last):
        for line in (path / "evaluations" / f"held-out-step-{step}.jsonl").read_text().splitlines():
            answer = json.loads(line)
            if answer["k"] == 0:
                examples.setdefault(answer["id"], []).append(answer["response"])
    kinds = {}
    for name, pair in examples.items():
        kinds.setdefault(name.rpartition("-")[0], {"id": name, "before": pair[0], "after": pair[1]})
    return {
        "device": device,
        "seed": spec.run.seed,
        "lr": spec.schedule.lr,
        "versions": json.loads((path / "env.json").read_text())["versions"],
        "seconds": round(run.summary["seconds"]),
        "pass_rate": [round(row["pass_rate"], 3) for row in rows],
        "in_format": [round(count / size, 3) for count in formatted],
        "right_given_format": [
            round(row["pass_rate"] * size / max(count, 1), 3) for row, count in zip(rows, formatted, strict=True)
        ],
        "kl": [round(row["kl"], 3) for row in rows],
        "response_length": [round(row["response_length"], 1) for row in rows],
        "seconds_rollout": [round(row["seconds_rollout"], 1) for row in rows],
        "seconds_update": [round(row["seconds_update"], 1) for row in rows],
        "before": by_kind(path / "evaluations" / "held-out-step-0.jsonl"),
        "after": by_kind(path / f"evaluations/held-out-step-{last}.jsonl"),
        "answers": kinds,
    }


def show(runs):
    """The tables as Markdown."""
    print("| kind | device, seed | problems | right before | right after | in format | right given format |")
    print("|---|---|---|---|---|---|---|")
    for kind in ("sum", "story", "two-step", "product"):
        for run in runs:
            was, now = run["before"][kind], run["after"][kind]
            spans = ["{:.2f} [{:.2f}, {:.2f}]".format(*one["right"]) for one in (was, now)]
            rest = [f"{was[key]:.2f} to {now[key]:.2f}" for key in ("in_format", "right_given_format")]
            print(f"| {kind} | {run['device']}, {run['seed']} | {was['problems']} | {' | '.join([*spans, *rest])} |")


def main():
    """Read the runs, write the file, print the tables."""
    device, *paths = sys.argv[1:]
    aside = paths.index("--aside") if "--aside" in paths else len(paths)
    runs = [record(device, Path(path)) for path in paths[:aside]]
    if aside < len(paths):
        runs += [record(paths[aside + 1], Path(path)) for path in paths[aside + 2 :]]
    PLACE.write_text(json.dumps(runs, separators=(",", ":")) + "\n")
    show(runs)


if __name__ == "__main__":
    main()
