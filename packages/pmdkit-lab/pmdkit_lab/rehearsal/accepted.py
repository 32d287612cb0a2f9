"""What an accepted rehearsal of a recipe found, to which later ones are compared: mistakes change numbers.

`accepted.json` has the recipes that are shipped: `python -m pmdkit_lab.rehearsal.accepted` writes it. The first
rehearsal that fits of any other recipe is recorded in the user's cache.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pmdkit.hub import cache_folder
from pmdkit_lab.planner.memory import GIB

SHIPPED = Path(__file__).with_name("accepted.json")
SHIPPED_RECIPES = (
    *("qwen2.5-7b", "one-gpu", "qwen3-30b-a3b", "calculator", "starter", "starter-moe", "smollm2", "starter-100m"),
    "qwen2.5-7b parallel.replicas=4",
    "qwen2.5-7b parallel.processes=64 parallel.replicas=8",
)
LINE = re.compile(r":[0-9]+ ")  # of a site: lines move with every edit
ELSEWHERE = {"schedule", "parallel", "vllm", "evaluation", "run"}  # tables that do not change the work of a token
TOLERANCE = 0.01  # relative deviation that is reported
PART = 0.01  # a site below this share of its phase is not recorded
MEASURES = {  # name: how it is shown, one unit of it, and the amount below which 1 % is of that amount
    "memory": ("GiB at the peak", GIB, 2**20),
    "traffic": ("GiB sent", GIB, 2**20),
    "products": ("TFLOP", 1e12, 1e9),
    "moved": ("GB read and written", 1e9, 1e6),
    "waits": ("waits of the host", 1, 1),
}


def summary(phase: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """By measure: its amounts by kind, and the share of each site, without its line; and what predicts its time."""
    sent = Counter[str]()
    for what, line in phase["order"]:
        sent[line] += int(what.split()[-1]) if what.split()[-1].isdigit() else 0
    flops = Counter({site: cost[2] for site, cost in phase["costs"].items() if cost[2]})
    moved = Counter({site: cost[3] for site, cost in phase["costs"].items()})
    amounts = {
        "memory": ({"": phase["peak"]}, phase["sites"]),
        "traffic": (phase["traffic"], sent),
        "products": (phase["products"], flops),
        "moved": ({"": moved.total()}, moved),
        "waits": ({"": sum(phase["waits"].values())}, phase["waits"]),
    }
    found = {name: {"kinds": dict(kinds), "sites": without_lines(sites)} for name, (kinds, sites) in amounts.items()}
    launches = sum(phase["kernels"].values())
    return {**found, "counts": {"tokens": phase["tokens"], "launches": launches, **phase["limits"]}}


def without_lines(sites: Mapping[str, int]) -> dict[str, int]:
    """Amounts by file and function, of those that are a part worth naming."""
    found = Counter[str]()
    for site, amount in sites.items():
        found[LINE.sub(" ", site)] += amount
    least = PART * sum(found.values())
    return {site: amount for site, amount in found.items() if amount > least}


def record_of(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What is recorded of the ranks of a rehearsal."""
    ranks = {
        str(one["rank"]): {name: summary(phase) for name, phase in one["phases"].items()}
        for one in found
        if "like" not in one
    }
    return {"torch": version("torch").partition("+")[0], "ranks": ranks}


def deviations(found: Sequence[Mapping[str, Any]], accepted: Mapping[str, Any]) -> list[str]:
    """A sentence for each number that differs by more than 1 % from the accepted rehearsal, with what changed most."""
    now = record_of(found)["ranks"]
    words: dict[str, list[str]] = {}  # ranks mostly deviate alike
    for rank, phases in accepted["ranks"].items():
        for name, phase in phases.items():
            if name in now.get(rank, {}):
                for text in compared(now[rank][name], phase):
                    words.setdefault(f"{name}: {text}", []).append(rank)
    alone = len(set(accepted["ranks"]) & set(now)) > 1
    return [f"rank {ranks[0]} alone, {text}" if alone and len(ranks) == 1 else text for text, ranks in words.items()]


def compared(now: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[str]:
    """The deviations of one phase."""
    for measure, (unit, one, least) in MEASURES.items():
        new, old = now[measure], before[measure]
        for kind in dict.fromkeys((*old["kinds"], *new["kinds"])):
            amount, was = new["kinds"].get(kind, 0), old["kinds"].get(kind, 0)
            if abs(amount - was) <= TOLERANCE * max(was, least):
                continue
            moved = Counter(new["sites"])
            moved.subtract(old["sites"])
            site, by = max(moved.items(), key=lambda pair: pair[1] * (1 if amount > was else -1), default=("", 0))
            cause = f"; most at {site}, {by / one:+.3g}" if by * (amount - was) > 0 else ""
            kind = f" ({kind})" if kind else ""
            yield f"{amount / one:.4g} {unit}{kind}, accepted with {was / one:.4g}{cause}"


def unlike_calls(found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A mistake for the first collective that two ranks do not call together: real ones would wait for each other."""
    ranks = [one for one in found if "problem" not in one and "like" not in one]
    for one in ranks[1:]:
        for name in ranks[0]["phases"]:
            first, other = (rank["phases"].get(name, {"order": []})["order"] for rank in (ranks[0], one))
            nothing = ["nothing", "the end of the phase"]
            for number in range(max(len(first), len(other))):
                (a, here), (b, there) = (calls[number] if number < len(calls) else nothing for calls in (first, other))
                if a != b:
                    problem = (
                        f"rank {ranks[0]['rank']} calls {a} at {here} where rank {one['rank']} calls {b} at {there}: "
                        "real processes would wait for each other until parallel.timeout"
                    )
                    where = there if here == nothing[1] else here
                    return [{"rank": one["rank"], "phase": name, "problem": problem, "where": where}]
    return []


def key_of(recipe: str, changes: Mapping[str, Any], gpus: str) -> str:
    """The name of a record: recipe, options and accelerators."""
    return " ".join((recipe, *(f"{name}={changes[name]}" for name in sorted(changes)), gpus))


def load(key: str) -> tuple[Mapping[str, Any] | None, Path]:
    """The accepted rehearsal of this name, if there is one, and the file that has it or will."""
    for name, record, path in records():
        if name == key:
            return record, path
    return None, cache_folder() / "rehearsals.json"


def records() -> Iterator[tuple[str, Mapping[str, Any], Path]]:
    """The name, record and file of each accepted rehearsal, the user's own first."""
    for path in (cache_folder() / "rehearsals.json", SHIPPED):
        every = json.loads(path.read_text("utf-8")) if path.exists() else {}
        yield from ((name, record, path) for name, record in every.items())


def counts_of(recipe: str, changes: Mapping[str, Any]) -> Mapping[str, int] | None:
    """What limits the kernels of two passes of a recipe's updates, by an accepted rehearsal on any accelerators.

    Changes in tables that do not change the work of a token are passed over. None if there is no such rehearsal.
    """
    asked = [word for word in key_of(recipe, changes, "").split() if word.partition(".")[0] not in ELSEWHERE]
    for name, record, _ in records():
        counts: Mapping[str, int] | None = record["ranks"]["0"].get("update", {}).get("counts")
        if counts and [word for word in name.split()[:-1] if word.partition(".")[0] not in ELSEWHERE] == asked:
            return counts
    return None


def save(key: str, accepted: Mapping[str, Any], path: Path) -> None:
    """Add a record to a file."""
    every = json.loads(path.read_text("utf-8")) if path.exists() else {}
    every[key] = accepted
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    lines = (f"{json.dumps(name)}: {json.dumps(every[name])}" for name in sorted(every))
    part.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
    part.replace(path)


def main() -> None:
    """Rehearse the shipped recipes on H100s and record them; names on the command line limit it to those."""
    from pmdkit.resolve import resolve
    from pmdkit_lab.planner.data_sheets import GPUS
    from pmdkit_lab.rehearsal.rehearse import rehearse_ranks, verdict

    for name in sys.argv[1:] or SHIPPED_RECIPES:
        recipe, *options = name.split()
        changes = {key: int(value) for key, value in (option.split("=") for option in options)}
        spec, _ = resolve("llm", recipe, changes)
        count = spec.parallel.processes
        given = {"recipe": recipe, "changes": changes, "trust": [], "gpu": "H100"}
        # one after another, with the memory of one; the ranks between are like the last
        found = [one for rank in sorted({0, count - 1}) for one in rehearse_ranks([{**given, "rank": rank}])]
        report = verdict(spec, GPUS["H100"], found)
        print(f"{name}: {report['verdict']}", flush=True)
        if not report["mistakes"]:
            save(key_of(recipe, changes, report["gpus"]), record_of(found), SHIPPED)


if __name__ == "__main__":
    main()
