"""SmolLM2 on GSM8K: `python benchmarks/smollm2_gsm8k.py run FILE.jsonl FOLDER`, then `record FOLDER MACHINE`.

Stated before the first run. FILE is GSM8K's test split (openai/grade-school-math, MIT), which is not shipped. Its first
64 problems are asked; the untouched model is trained on the other 1,255, never on those 64. So the numbers after
training say nothing about GSM8K as others report it: they trained on its train split.

- *Asked*: the recipe `smollm2`'s prompt with its two examples, k = 4 responses to each, temperature 1, top_p 0.7, at
  most 256 tokens; right is what the project's verifier says of the last `Answer:` line. Before and after.
- *Trained*: PMD-mean, the recipe's tau 0.05, lr 1e-5 and two ministeps; a step is 4 prompts with 8 responses of at most
  128 tokens. On one core, 12 steps are planned. Where time runs out the run is stopped (Ctrl-C) after a whole step, and
  `record` says how many there were; nothing that the run shows decides when.
- *Measure*: avg@4, the share of right responses, paired by problem. *More* or *less* if the 95 % t interval of the
  paired difference excludes 0, else *not told apart*. pass@4 with its interval, and what was cut off or had no
  answer, are reported and decide nothing. The first answers to the first two problems are shown, whatever they are.

Expected: right before in a few percent at most; most groups are all wrong and teach nothing, so no change in avg@4. The
answer format may be learned.

Kept because docs/use/llm.md has its numbers on GSM8K.
"""

import json
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np

from pmdkit.envs.math import make_math
from pmdkit.llm.evaluate import graded_draws, read_record
from pmdkit.run import Run
from pmdkit.stats import measure_at_k, paired_difference

ASKED, K, STEPS, WIDTH, TRAINED_WIDTH = 64, 4, 12, 256, 128
PLACE = Path(__file__).parent / "results" / "smollm2-gsm8k.json"


def run(data, out):
    """Split the file, ask the first problems, train on the others, ask again; an interrupted run is continued."""
    lines, out = Path(data).read_text(encoding="utf-8").splitlines(keepends=True), Path(out)
    out.mkdir(parents=True, exist_ok=True)
    asked, others = out / "gsm8k-asked.jsonl", out / "gsm8k-others.jsonl"
    asked.write_text("".join(lines[:ASKED]), encoding="utf-8")
    others.write_text("".join(lines[ASKED:]), encoding="utf-8")
    place = out / "run"
    settings = {"env.held_out": 0, "rollout.width": TRAINED_WIDTH, "rollout.max_prompt": 512, "rollout.record_every": 1}
    settings |= {"evaluation.data": asked, "evaluation.problems": ASKED, "evaluation.k": K, "evaluation.top_p": 0.7}
    settings |= {"evaluation.width": WIDTH, "run.threads": 1, "run.checkpoint_every": 2, "run.keep": 1}
    command = [sys.executable, "-m", "pmdkit", "llm", "smollm2", "--data", str(others), "--steps", str(STEPS)]
    command += ["--prompts", "4", "--group", "8", "--out", str(place), *(["--resume"] if place.exists() else [])]
    code = subprocess.run([*command, "--set", *(f"{key}={value}" for key, value in settings.items())]).returncode
    if code == 75:  # stopped on request: the newest checkpoint is asked
        evaluate = [sys.executable, "-m", "pmdkit", "eval", str(place), "--data", str(asked), "--k", str(K)]
        evaluate += ["--width", str(WIDTH), "--temperature", "1", "--top-p", "0.7", "--out", str(out / "after")]
        code = subprocess.run(evaluate).returncode
    sys.exit(code)


def last_number(text):
    """The last number of a response, as graders read it that ask for no form."""
    numbers = re.findall(r"-?\d[\d,]*(?:\.\d+)?", text)
    return numbers[-1].replace(",", "") if numbers else None


def told(path, gold):
    """Of an evaluation: its shares; by problem's id the share of right responses, and the first response."""
    problems = read_record(path, K)
    answers = [answer for group in problems.values() for answer in group]
    draws = graded_draws(answers, K)
    found = {name: asdict(share) for name, share in measure_at_k(draws, np.random.default_rng(0)).items()}
    found |= {"right": int(draws.right.sum()), "responses": len(answers)}
    found |= {"cut_off": sum(not answer.ended for answer in answers)}
    found |= {"unanswered": sum(answer.verdict.path == "none" for answer in answers)}
    found |= {"tokens": sum(answer.tokens for answer in answers)}
    found["last_number_right"] = sum(last_number(answer.response) == gold[answer.id] for answer in answers)  # unplanned
    rates = dict(zip(problems, draws.right.mean(1), strict=True))
    return found, rates, {name: group[0].response for name, group in problems.items()}


def record(out, device):
    """Write what the folder holds, with two answers before and after."""
    out = Path(out)
    done = Run(out / "run")
    ways = {"before": out / "run" / "evaluations" / "gsm8k-asked-step-0.jsonl"}
    last = [out / "run" / "evaluations" / f"gsm8k-asked-step-{STEPS}.jsonl", out / "after" / "responses.jsonl"]
    if there := [path for path in last if path.exists()]:
        ways["after"] = there[0]
    problems = make_math({"kind": "file", "path": str(out / "gsm8k-asked.jsonl")})
    gold = {one.id: one.answer.replace(",", "") for one in map(problems.problem, problems.train)}
    found = {"device": device, "steps": len(done.metrics), "k": K, "width": WIDTH}
    keep = ("pass_rate", "unanswered", "cut_off", "response_length", "zero_variance_groups", "skipped_updates")
    found["training"] = {key: [round(row[key], 4) for row in done.metrics] for key in keep}
    found["minutes"] = round(sum(row["seconds_rollout"] + row["seconds_update"] for row in done.metrics) / 60, 1)
    shares, first = {}, {}
    for name, path in ways.items():
        found[name], shares[name], first[name] = told(path, gold)
    if "after" in ways:
        after, before = (np.array([shares[name][id] for id in shares["before"]]) for name in ("after", "before"))
        gap = asdict(paired_difference(before, after).difference)
        found["difference"] = gap
        found["verdict"] = "more" if gap["low"] > 0 else "less" if gap["high"] < 0 else "not told apart"
    for id in list(first["before"])[:2]:
        found[id] = {name: first[name][id] for name in ways}
    PLACE.write_text(json.dumps(found, separators=(",", ":")) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    {"run": run, "record": record}[sys.argv[1]](*sys.argv[2:])
