"""Good answers among hostile ones, with workers killed meanwhile: all are right. And no gold is out of reach."""

import itertools
import json
import os
import random
import signal
import threading
from pathlib import Path

import pytest

from pmdkit.envs.verifier import Grader, Item
from pmdkit.envs.verifier.verify import Pending, grade_by_rules

from .attacks import attacks
from .latex import answers
from .scale import scaled

ROOT = Path(__file__).parents[2]
ROWS = scaled(800)
BATCH = 100
HOSTILE = 0.1


def stream(seed: int):
    """(item, None if it is hostile else True): one in ten is hostile, an attack or what the grammar makes."""
    draw = random.Random(seed)
    rows = [row for row in attacks() if not row.boxed]
    good = [row for row in rows if row.correct]
    hostile = [Item(row.response, row.gold) for row in rows if not row.correct]
    hostile += [Item(text, gold) for _, gold, text in itertools.islice(answers(seed), 300)]
    while True:
        if draw.random() < HOSTILE:
            yield draw.choice(hostile), None
        else:
            row = draw.choice(good)
            yield Item("Let me see. " * draw.randint(0, 50) + row.response, row.gold), True


def kill_one(grader: Grader, delay: float) -> threading.Timer:
    """SIGKILL for a worker, as from a kernel short of memory, so many seconds from now."""

    def strike() -> None:
        for process in list(grader.processes)[:1]:
            if process.popen.returncode is None:  # collected ones may have given their number to others
                os.kill(process.popen.pid, signal.SIGKILL)

    timer = threading.Timer(delay, strike)
    timer.start()
    return timer


def test_good_answers_stay_right_while_workers_are_killed():
    """At most one kill in a batch: an answer that loses its worker is tried once more."""
    draw, kills = random.Random(1), 0
    rows = list(itertools.islice(stream(3), ROWS))
    with Grader(workers=2) as grader:
        grader.probe()
        for start in range(0, ROWS, BATCH):
            batch = rows[start : start + BATCH]
            pids = {process.popen.pid for process in grader.processes}
            timer = kill_one(grader, draw.uniform(0, 0.2)) if start % (2 * BATCH) == 0 else None
            verdicts = grader.grade([item for item, _ in batch])
            if timer is not None:
                timer.join()
                kills += any(not Path(f"/proc/{pid}/fd").exists() or killed(pid) for pid in pids)
            missed = [
                (item.response[-80:], item.gold, verdict)
                for (item, right), verdict in zip(batch, verdicts, strict=True)
                if right and verdict.correct is not True
            ]
            assert not missed, missed
    assert kills >= 1, "no worker was killed: this test saw nothing"


def killed(pid: int) -> bool:
    """Whether a process is gone or waits to be collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


def shipped_golds() -> list[str]:
    """Answers of every problem that comes with the package, without repeats."""
    files = [*(ROOT / "pmdkit/envs/math/data").glob("*.jsonl"), *(ROOT / "envs/math").glob("*.jsonl")]
    golds = []
    for file in files:
        for line in file.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            golds.append(row["answer"] if "answer" in row else row["reward_model"]["ground_truth"])
    return sorted(set(map(str, golds)))


def integer_forms(gold: str) -> list[str]:
    """Twenty ways in which models write an integer, and what may stand around it."""
    value = int(gold)
    sign, grouped = "-" * (value < 0), f"{abs(value):,}"
    digits = f"{sign}{abs(value)}"
    return [
        *(digits, f"{digits}.", f"{digits},", f"{digits}.0", f"{digits}.00", f" {digits} ", f"\n{digits}"),
        *(f"${digits}$", f"${digits}$.", rf"\({digits}\)", rf"\[{digits}\]", f"$${digits}$$", rf"\boxed{{{digits}}}"),
        *(f"**{digits}**", f"`{digits}`", rf"\text{{{digits}}}", rf"\mathbf{{{digits}}}", f"{sign}0{abs(value)}"),
        *(
            f"{sign}{grouped}",
            f"{sign}{grouped.replace(',', '{,}')}",
            f"x = {digits}",
            f"{digits} cm",
            rf"{digits}^\circ",
        ),
        *(rf"\frac{{{2 * value}}}{{2}}", f"{3 * value}/3", f"The answer is {digits}.", f"The answer is **{digits}**."),
        *(f"The answer is ${digits}$.", f"$$\n\\boxed{{{digits}}}\n$$", f"{digits}\nThis is because it fits."),
    ]


def latex_forms(gold: str) -> list[str]:
    """Twenty ways to frame any answer."""
    spaced = gold.replace("+", " + ").replace("=", " = ")
    return [
        *(gold, f"{gold}.", f" {gold} ", f"${gold}$", f"${gold}$.", f"$ {gold} $", rf"\({gold}\)", rf"\( {gold} \)"),
        *(
            f"$${gold}$$",
            rf"\[{gold}\]",
            f"$$\n{gold}\n$$",
            f"\\[\n{gold}\n\\]",
            rf"\boxed{{{gold}}}",
            rf"$\boxed{{{gold}}}$",
        ),
        *(
            rf"$\boxed{{{gold}}}$.",
            f"**${gold}$**",
            f"\n{gold}",
            f"\n\n${gold}$",
            f"{gold}\nThis is because it fits.",
            spaced,
        ),
        *(f"The answer is ${gold}$.", rf"The answer is \({gold}\)", f"$${gold}$$."),
    ]


def test_every_shipped_gold_is_accepted_in_thirty_forms():
    golds = shipped_golds()
    assert len(golds) > 50
    missed = []
    for gold in golds:
        for form in integer_forms(gold):
            said = grade_by_rules(f"So it goes.\nAnswer: {form}", gold)
            if isinstance(said, Pending) or said.correct is not True:
                missed.append((form, gold, said))
    assert not missed


@pytest.fixture(scope="module")
def golds():
    """Of data sets and other suites; left out are whole solutions and broken ones that stand where a gold should."""
    rows = [json.loads(line) for line in (ROOT / "tests/data/verifier_cases.jsonl").read_text("utf-8").splitlines()]
    golds = {row["gold"].strip("$") for row in rows if row.get("gold")}
    golds = sorted(gold for gold in golds if 0 < len(gold) < 80 and not any(mark in gold for mark in ("box", "$")))
    random.Random(0).shuffle(golds)
    return [gold for gold in golds if not gold.endswith("\\")][: scaled(120)]


def test_golds_of_every_kind_are_accepted_in_twenty_forms(golds):
    """A gold that its own text does not reach would be a problem that nobody can solve."""
    assert len(golds) >= 100
    items = [Item(f"Answer: {form}", gold) for gold in golds for form in latex_forms(gold)]
    with Grader() as grader:
        verdicts = grader.grade(items)
    missed = [
        (item.response, item.gold, verdict)
        for item, verdict in zip(items, verdicts, strict=True)
        if verdict.correct is not True
    ]
    assert not missed, f"{len(missed)} of {len(items)}: {missed[:20]}"
