"""The programs of twins/ side by side: lines of code, seconds as whole processes, and what they learn.

`python benchmarks/twins.py` in .venv-bench or .venv-trl, with TRL 1.16 and pmdkit, writes results/twins.json;
docs/use/trainers.md shows it. Models and data are made here, in a temporary folder, without the hub. Sides take turns,
each on one thread.

Kept because docs/use/trainers.md has its table.
"""

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import Any

from harness import machine

HERE = Path(__file__).parent
PROGRAMS: dict[str, dict[str, list[str]]] = {  # the files that a person writes; the first one is run
    "format": {"pmdkit": ["format.toml", "form.py"], "trl": ["format_trl.py"]},
    "calculator": {"pmdkit": ["calculator.toml"], "trl": ["calculator_trl.py"]},
}
LAST = 5  # steps over which the pass rate at the end is a mean


def lines(files: list[str]) -> int:
    """Lines of the programs, without empty lines and comment lines."""
    texts = [(HERE / "twins" / name).read_text(encoding="utf-8").splitlines() for name in files]
    return sum(bool(line.strip()) and not line.lstrip().startswith("#") for text in texts for line in text)


def prepare(folder: Path) -> None:
    """Make a starter, one that was taught to call a calculator now and then, and 2,000 sums in GSM8K's columns."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from pmdkit import train
    from pmdkit.envs.math import make_math
    from pmdkit.llm.export import export_starter

    export_starter(folder / "starter", "starter", 0, 0.3, lambda note: None)
    taught = train("pmd-mean", "llm", "calculator", steps=1, out=folder / "taught").path / "checkpoints" / "step-1"
    AutoModelForCausalLM.from_pretrained(taught).save_pretrained(folder / "caller")
    AutoTokenizer.from_pretrained(taught).save_pretrained(folder / "caller")
    problems = make_math({"kind": "arithmetic"})
    asked = [problems.problem(int(number)) for number in problems.train[:2000]]
    rows = [{"question": one.problem, "answer": f"We add the numbers.\n#### {one.answer}"} for one in asked]
    (folder / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def run(side: str, files: list[str], folder: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    """Run a program from start to end, imports included, and read what it reports for each step."""
    shutil.rmtree(folder / "trained", ignore_errors=True)
    for name in files:
        shutil.copy(HERE / "twins" / name, folder)
    trusted = ["--trust", *files[1:]] if files[1:] else []
    command = [sys.executable, "-W", "ignore", files[0]]
    if side == "pmdkit":
        command = [sys.executable, "-m", "pmdkit", "llm", files[0], "--out", "trained", *trusted]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{files[0]} failed: {done.stderr[-2000:]}")
    if side == "trl":
        rates = [float(rate) for rate in re.findall(r"'rewards/math/mean': '?([0-9.e-]+)", done.stdout + done.stderr)]
    else:
        rows = (folder / "trained" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        rates = [json.loads(row)["pass_rate"] for row in rows]
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall": round(wall, 1), "cpu": round(cpu, 1), "rates": [round(rate, 4) for rate in rates]}


def main() -> None:
    """Make the models, run every program in turns, write the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1, help="of each program")
    rounds = parser.parse_args().rounds
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    readings: dict[str, dict[str, list[dict[str, Any]]]] = {}
    with tempfile.TemporaryDirectory() as made:
        environment["HF_HOME"] = made
        prepare(Path(made))
        for _ in range(rounds):
            for task, sides in PROGRAMS.items():
                for side, files in sides.items():
                    one = run(side, files, Path(made), environment)
                    readings.setdefault(task, {}).setdefault(side, []).append(one)
                    print(task, side, one["wall"], one["cpu"], one["rates"][0], one["rates"][-1], flush=True)
    record = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine.machine(),
        "versions": machine.versions(),
        "load": machine.load(),
        "readings": readings,
        "table": table(readings),
    }
    (HERE / "results" / "twins.json").write_text(json.dumps(record) + "\n", encoding="utf-8")


def table(readings: dict[str, dict[str, list[dict[str, Any]]]]) -> dict[str, dict[str, dict[str, float]]]:
    """What the page shows: lines, least seconds, and the pass rates of the first step and over the last ones."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for task, sides in readings.items():
        for side, runs in sides.items():
            found.setdefault(task, {})[side] = {
                "lines": lines(PROGRAMS[task][side]),
                "cpu": min(one["cpu"] for one in runs),
                "wall": min(one["wall"] for one in runs),
                "first": round(mean(one["rates"][0] for one in runs), 2),
                "last": round(mean(mean(one["rates"][-LAST:]) for one in runs), 2),
            }
    return found


if __name__ == "__main__":
    main()
