"""Race every loss of a folder by the protocol of `pmdkit race`, and write the table of all.

    python leaderboard.py losses --budget 10m --out leaderboard

A loss is a file NAME.py; its last class races. A file that cannot race costs its own row. A race that was finished is
not run again as long as its file stays the same, and one that was stopped goes on. The losses run as you do: read them
first, or run this where there is nothing to lose, as leaderboard.yml does.
"""

import argparse
import ast
import hashlib
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pmdkit.errors import printable
from pmdkit_lab.durations import duration

RACE = ("pmdkit", "race")
CELL = "{auc[mean]:.3f}, {gain[mean]:+.3f} [{gain[low]:+.3f}, {gain[high]:+.3f}] {outcome}"


def raced(path: Path, out: Path, budget: str, command: Sequence[str] = RACE) -> dict[str, Any]:
    """task -> the row of this loss in the table of the race; or `failed`, the reason in a sentence."""
    source = path.read_bytes()
    try:
        (*_, name) = [node.name for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    except (SyntaxError, ValueError):
        return {"failed": "no Python with a class in it"}
    place = out / f"{path.stem}-{hashlib.sha256(source).hexdigest()[:8]}"
    words = [*command, f"{path}:{name}", "--budget", budget, "--out", str(place), "--json"]
    try:
        done = subprocess.run(
            [*words, *(["--resume"] if place.exists() else [])],
            capture_output=True,
            text=True,
            timeout=2 * duration(budget) + 60,  # the race stops by itself, unless a loss never returns
        )
        tables = json.loads(done.stdout)["tables"]
    except subprocess.TimeoutExpired:
        return {"failed": "it was still running after twice the budget"}
    except (ValueError, KeyError):
        return {"failed": printable((done.stderr.strip().splitlines() or ["it printed nothing"])[-1])[:200]}
    return {task: row for task, rows in tables.items() for row in rows if row.get("yours")}


def table(found: dict[str, dict[str, Any]]) -> str:
    """Markdown: the best mean gain first, those that failed last."""
    tasks = list(dict.fromkeys(task for rows in found.values() if "failed" not in rows for task in rows))
    gain = {
        name: sum(row["gain"]["mean"] for row in rows.values()) / len(rows)
        for name, rows in found.items()
        if "failed" not in rows
    }
    lines = [f"| loss | {' | '.join([*tasks, 'mean gain'])} |", "|---" * (len(tasks) + 2) + "|"]
    for name in sorted(gain, key=lambda name: -gain[name]):
        cells = [CELL.format(**found[name][task]) if task in found[name] else "" for task in tasks]
        lines.append(f"| {name} | {' | '.join([*cells, f'{gain[name]:+.3f}'])} |")
    failed = [name for name in found if name not in gain]
    lines += [f"| {name} | {found[name]['failed'].replace('|', '/')}{' |' * (len(tasks) + 1)}" for name in failed]
    note = (
        "Pass rate over training; gain over PMD-mean, paired by seed, with its 95 % interval. Places whose intervals\n"
    )
    return "\n".join(lines) + f"\n\n{note}overlap are not an order.\n"


def main(folder: Path, out: Path, budget: str, command: Sequence[str] = RACE) -> str:
    """Race all losses of a folder, write OUT/leaderboard.md after each, and return it."""
    found: dict[str, dict[str, Any]] = {}
    out.mkdir(parents=True, exist_ok=True)
    for path in sorted(folder.glob("*.py")):
        found[path.stem] = raced(path, out, budget, command)
        (out / "leaderboard.md").write_text(table(found), encoding="utf-8")
    return table(found)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--budget", default="10m", help="of each loss; it chooses the tasks, see pmdkit race --help")
    parser.add_argument("--out", type=Path, default=Path("leaderboard"))
    asked = parser.parse_args()
    print(main(asked.folder, asked.out, asked.budget))
