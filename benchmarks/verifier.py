"""The answer verifier against labelled answers, and its speed: `python benchmarks/verifier.py [cases.jsonl] [--all]`.

Prints the agreement by kind and tag over rows labelled true or false, then the disagreements by rule (`--all`: every
one). The default is the subset shipped with the tests. `--hostile` only measures answers, one in ten of them hostile.

Kept because README.md has its count of right verdicts and its speed.
"""

import json
import random
import re
import resource
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

from pmdkit.plugins import module_from_file
from strict_answers import Grader, Item, Verdict, verify
from strict_answers.extraction import BOXES, answer_line, last_box

LABELLED = Path(__file__).parents[1] / "packages" / "strict-answers" / "tests"
CASES = LABELLED / "suites.jsonl"
ATTACKS = LABELLED / "helpers" / "hostile.py"
KINDS = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
TAG = re.compile(r"<answer>(.*?)(?:</answer>|\Z)", re.DOTALL)
JSON_ANSWER = re.compile(r'"answer"\s*:\s*("(?:[^"\\]|\\.)*"|[^,}\n]+)')
A_LINE = re.compile(r"(?:^|\n)A: *(.*)\s*\Z")
SHORT = 200
"Characters up to which a pair's prediction is a bare answer; a longer one is a response and needs a marker."


def asked(row: dict) -> tuple[Item | None, bool]:
    """(item for the verifier, boxed); the item is None if the response has no marker of any kind.

    Only the marker of the answer is translated, never the answer: each source asked its models for its own marker.
    """
    gold, kind = row["gold"], row["kind"]
    if kind == "model_pair":
        return Item("Answer: " + row["prediction"], gold), False
    text = row["response"] if kind == "response" else row["prediction"]
    if kind == "pair":
        if any(name in text for name in BOXES) and text.count("\\boxed") < 2:
            return Item(text, gold), True
        if answer_line(text) is None and "<answer>" not in text:
            return (Item("Answer: " + text, gold), False) if len(text) <= SHORT else (None, False)
    tag = TAG.findall(text)
    if tag:
        return Item("Answer: " + " ".join((last_box(tag[-1]) or tag[-1]).split()), gold), False
    if any(name in text for name in BOXES):
        return Item(text, gold), True
    if "json-answer" in row["tags"] and (found := JSON_ANSWER.findall(text)):
        return Item("Answer: " + unquoted(found[-1]), gold), False
    if answer_line(text) is not None:
        return Item(text, gold), False
    if found := A_LINE.search(text):
        return Item("Answer: " + found[1], gold), False
    return None, False


def unquoted(text: str) -> str:
    """A JSON string as text; anything else only loses its outer quotes and blanks."""
    try:
        return str(json.loads(text, strict=False)).replace("\n", " ")
    except ValueError:
        return text.strip('" ')


def judge(rows: list[dict], workers: int = 1) -> list[tuple[dict, Verdict | None]]:
    """Every labelled row with its verdict; None where there is no marker."""
    result: list[tuple[dict, Verdict | None]] = [(row, None) for row in rows]
    for boxed in (False, True):
        places, items = [], []
        for place, row in enumerate(rows):
            item, in_box = asked(row)
            if item is not None and in_box == boxed:
                places.append(place)
                items.append(item)
        with Grader(boxed=boxed, workers=workers) as grader:
            for place, verdict in zip(places, grader.grade(items), strict=True):
                result[place] = rows[place], verdict
    return result


def labelled(path: Path) -> list[dict]:
    """Rows with a label, true or false; `extract` rows and contested ones have none."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if row.get("expected") is not None]


def reason_class(row: dict, verdict: Verdict) -> str:
    """The rule that caused a disagreement."""
    if verdict.correct is None:
        return "unscored"
    reason = re.sub(r"'[^']*'|\d+", "_", verdict.reason)
    return f"{'accepted' if verdict.correct else 'refused'}, {verdict.path}: {reason}"


def report(path: Path, show_all: bool) -> None:
    """Print agreement and disagreements."""
    judged = judge(labelled(path))
    with_marker = [(row, verdict) for row, verdict in judged if verdict is not None]
    without = Counter(row["expected"] for row, verdict in judged if verdict is None)
    agree: dict[tuple[str, str], list[bool]] = defaultdict(list)
    classes: dict[str, list[tuple[dict, Verdict]]] = defaultdict(list)
    for row, verdict in with_marker:
        same = verdict.correct is row["expected"]
        for name in [("all", ""), (row["kind"], ""), *((row["kind"], tag) for tag in row["tags"])]:
            agree[name].append(same)
        if not same:
            classes[reason_class(row, verdict)].append((row, verdict))
    for (kind, tag), marks in sorted(agree.items()):
        if len(marks) >= 10:
            print(f"{kind:12s} {tag:32s} {sum(marks) / len(marks):.4f} of {len(marks)}")
    print(f"no marker (wrong here): {without[False]} labelled false, {without[True]} labelled true")
    print("paths:", dict(Counter(verdict.path for _, verdict in with_marker)))
    for name, found in sorted(classes.items(), key=lambda pair: -len(pair[1])):
        print(f"-- {len(found)} disagreements: {name}")
        for row, verdict in found if show_all else found[:8]:
            print(f"   {row['kind']} {row['source']} gold {row['gold'][:60]!a} said {str(verdict.extracted)[:80]!a}")


def speed() -> None:
    """Print answers per second, in one process and through one worker."""
    text = "Let me think about it once more. " * 100 + "\nAnswer: {}"
    for name, count, answer in (("integer path", 200_000, "34"), ("integer path, unit", 20_000, "34 cm")):
        responses = [text.format(answer)] * count
        start = time.perf_counter()
        for response in responses:
            verify(response, "34")
        print(f"{name}: {count / (time.perf_counter() - start):,.0f} answers/s, responses of {len(text)} characters")
    with Grader() as grader:
        start = time.perf_counter()
        grader.probe()
        print(f"a worker starts in {time.perf_counter() - start:.2f} s")
        items = [Item(text.format(f"2^5+{i}"), "34") for i in range(1000)]
        start = time.perf_counter()
        grader.grade(items)
        print(f"symbolic path: {len(items) / (time.perf_counter() - start):,.0f} answers/s through one worker")
    hostile()


def hostile(count: int = 10_000, share: float = 0.1, workers: int = 2) -> None:
    """Print verdicts per second with one hostile answer in ten, and how many honest ones are not right.

    Honest and hostile answers are those of the fault tests. The rates are by the wall clock, which needs an idle
    machine, and by processor time of caller and workers together, which does not: two cores spend two seconds of it
    per second.
    """
    draw = random.Random(0)
    rows = [row for row in module_from_file(ATTACKS).attacks() if not row.boxed]
    good, bad = [row for row in rows if row.correct], [row for row in rows if not row.correct]
    asked = [draw.choice(bad if draw.random() < share else good) for _ in range(count)]
    # numbered, because equal responses are judged only once
    items = [Item(f"Thought {number}.\n{row.response}", row.gold) for number, row in enumerate(asked)]
    began, spent = time.perf_counter(), sum(map(processor, KINDS))
    with Grader(workers=workers) as grader:
        verdicts = [verdict for start in range(0, count, 512) for verdict in grader.grade(items[start : start + 512])]
    seconds, spent = time.perf_counter() - began, sum(map(processor, KINDS)) - spent
    missed = sum(row.correct and verdict.correct is not True for row, verdict in zip(asked, verdicts, strict=True))
    parsed = sum(verdict.path in ("symbolic", "timeout") for verdict in verdicts)
    print(
        f"hostile: {count / seconds:,.0f} verdicts/s by the clock, {2 * count / spent:,.0f} per two seconds of "
        f"processor time, start of {workers} workers included; {parsed} parsed, {missed} honest answers not right"
    )


def processor(kind: int) -> float:
    """Processor seconds of this process, or of its ended children."""
    usage = resource.getrusage(kind)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    arguments = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    if "--hostile" in sys.argv:
        hostile()
    else:
        report(Path(arguments[0]) if arguments else CASES, "--all" in sys.argv)
        speed()
