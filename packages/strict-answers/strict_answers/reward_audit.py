"""`strict-answers audit my.py:reward`: what does your reward function pay, and what does it refuse?

It is called as TRL, verl or a plain program calls it, in a process of its own: whatever a case does to it costs that
case alone.
"""

import argparse
import asyncio
import inspect
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from strict_answers.function_grader import import_function
from strict_answers.process import STARTUP, CannotLoad, Judge, Message, WorkerFailed, WorkerProcess
from strict_answers.reward_cases import GOLDS, LAYOUTS, Case, cases
from strict_answers.verdict import printable

COLUMNS = ("solution", "answer", "ground_truth", "gold", "target", "label", "final_answer")
"Names under which datasets hold the right answer."
NOT_COLUMNS = {"prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric", "environments"}
MEMORY_MB = 8192
PLAIN = (("34", "35"), ("-7", "8"), ("1234", "1235"), (r"2\sqrt{3}", r"3\sqrt{2}"))
"Golds and wrong answers that find out which layouts a reward reads."
WORST, WIDTH = 5, 160


# In the worker: call the function as its framework does.


def load(argument: Message, seconds: float) -> Callable[[Message], Message]:
    """The judge of a worker: a request has `response`, `gold` and `chat`, a reply the `value`, or None."""
    reward = import_function(argument["reward"])
    takes = inspect.signature(reward).parameters
    framework = "TRL" if "completions" in takes else "verl" if "solution_str" in takes else "plain"

    def judge(request: Message) -> Message:
        value = call(reward, framework, takes, request["response"], request["gold"], request["chat"])
        if value is None or not math.isfinite(value):  # NaN is not JSON
            return {"value": None, "error": f"the reward is {value}"}
        return {"value": float(value)}

    judge.takes = framework  # type: ignore[attr-defined]
    return judge


def call(reward: Callable[..., Any], framework: str, takes: Any, response: str, gold: str, chat: bool) -> Any:
    """The reward of one response."""
    any_name = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in takes.values())
    if framework == "TRL":
        columns = {
            name for name in takes if name not in NOT_COLUMNS and takes[name].kind is not inspect.Parameter.VAR_KEYWORD
        }
        given: dict[str, Any] = {name: [gold] for name in (columns | set(COLUMNS) if any_name else columns)}
        said: Any = [{"role": "assistant", "content": response}] if chat else response
        asked: Any = [{"role": "user", "content": "What is it?"}] if chat else "What is it?"
        given |= (
            {"prompts": [asked], "completion_ids": [[0]]}
            if any_name
            else {"prompts": [asked]}
            if "prompts" in takes
            else {}
        )
        value = reward(completions=[said], **given)
        value = asyncio.run(value) if inspect.iscoroutine(value) else value
        if len(value) != 1:
            raise ValueError(f"one completion got {len(value)} rewards")
        return value[0]
    if framework == "verl":
        given = {"data_source": "math", "solution_str": response, "ground_truth": gold, "extra_info": {}}
        value = reward(**{name: x for name, x in given.items() if any_name or name in takes})
        return value["score"] if isinstance(value, dict) else value
    return reward(response, gold)


# In the caller: ask, and count.


@dataclass(frozen=True)
class Setting:
    """How a reward is asked: layout of answers, layout of golds, and whether completions are conversations."""

    layout: str
    gold: str
    chat: bool


@dataclass(frozen=True)
class Asked:
    """The value that a case got; None and why where it got none."""

    case: Case
    value: float | None
    why: str = ""


class Auditor:
    """Asks a reward, with a time limit for each case; CannotLoad if its file cannot be imported or lacks it."""

    def __init__(self, reward: str, seconds: float) -> None:
        self.judge = Judge("strict_answers.reward_audit:load", {"reward": reward}, seconds, MEMORY_MB, sealed=False)
        self.worker: WorkerProcess | None = None

    def start(self) -> WorkerProcess:
        """The worker; a new one if the last one was lost."""
        if self.worker is None:
            self.worker = WorkerProcess(self.judge)
            self.worker.await_ready()
        return self.worker

    def ask(self, case: Case, how: Setting) -> Asked:
        """Ask the reward about a case: its value, or why there is none."""
        worker = self.start()
        # functions import what they need when they are first called
        deadline = time.monotonic() + (self.judge.seconds if worker.calls else STARTUP)
        reply: Message | None = None
        try:
            request = {"response": case.response, "gold": GOLDS[how.gold](case.gold), "chat": how.chat}
            worker.send(request, deadline)
            while reply is None:
                if time.monotonic() > deadline:
                    raise WorkerFailed(f"no value after {self.judge.seconds:g} s")
                time.sleep(0.0005)
                reply = worker.receive()
            if "fatal" in reply:
                raise WorkerFailed(reply["fatal"])
        except WorkerFailed as problem:
            self.close()
            return Asked(case, None, str(problem))
        return Asked(case, reply.get("value"), reply.get("error", ""))

    def close(self) -> None:
        """End the worker."""
        if self.worker is not None:
            self.worker.kill()
            self.worker = None


def find_setting(auditor: Auditor) -> tuple[Setting | None, float, list[Asked]]:
    """The setting in which most plain right answers get more than wrong ones, the value halfway, and the cases."""
    best: tuple[int, Setting | None, float] = 0, None, 0.0
    asked = []
    for layout in LAYOUTS:
        for gold in GOLDS:
            for chat in (True, False) if auditor.start().takes == "TRL" else (False,):
                how, told, halves = Setting(layout, gold, chat), 0, []
                for right, wrong in PLAIN:
                    pair = [
                        auditor.ask(Case("plain", right, LAYOUTS[layout](said), said == right), how)
                        for said in (right, wrong)
                    ]
                    asked += pair
                    if pair[0].value is None:
                        break
                    low = 0.0 if pair[1].value is None else pair[1].value
                    told += pair[0].value > low
                    halves.append((pair[0].value + low) / 2)
                if told > best[0]:
                    best = told, how, sum(halves) / len(halves)
                if told == len(PLAIN):
                    return how, best[2], asked
    return best[1], best[2], asked


def audit_reward(reward: str, seconds: float = 10.0, each: float = 1.0) -> dict[str, Any]:
    """Ask a reward function the labelled cases; returns what it paid wrongly, refused wrongly, or gave no value.

    Args:
        reward: my.py:function, with the signature of TRL (completions, columns, **kwargs), verl (solution_str,
            ground_truth, ...), or plain (response, answer).
        seconds: in all; what has not been asked by then is counted.
        each: seconds for a case.

    Raises:
        CannotLoad: the file cannot be imported, or has no such function.
    """
    began = time.monotonic()
    auditor = Auditor(reward, each)
    try:
        framework = auditor.start().takes
        how, half, plain = find_setting(auditor)
        found: dict[str, Any] = {"reward": reward, "framework": framework, "setting": None}
        if how is None:
            reasons = Counter(one.why or f"the reward is {one.value:g}" for one in plain if one.case.right)
            most = max((one.value for one in plain if one.value is not None and not one.case.right), default=None)
            return found | {"asked": len(plain), "answers": dict(reasons.most_common(3)), "wrong_at_most": most}
        listed = list(cases(LAYOUTS[how.layout]))
        asked: list[Asked] = []
        for case in listed:
            if time.monotonic() - began > seconds:
                break
            asked.append(auditor.ask(case, how))
    finally:
        auditor.close()
    paid = [one for one in asked if one.value is not None and one.value > half and not one.case.right]
    refused = [one for one in asked if one.value is not None and one.value <= half and one.case.right]
    return found | {
        "setting": {"answers": how.layout, "golds": how.gold, "conversations": how.chat},
        "halfway": half,
        "asked": len(asked),
        "left": len(listed) - len(asked),
        "right": sum(one.case.right for one in asked),
        "paid": counted(paid),
        "refused": counted(refused),
        "no_value": dict(Counter(f"{one.case.kind}: {one.why}" for one in asked if one.value is None)),
        # a wrong answer that is paid teaches to write it; those of attacks come first
        "worst": [shown(one) for one in [*reversed(first_of_each(paid)), *first_of_each(refused)][:WORST]],
    }


def counted(asked: Sequence[Asked]) -> dict[str, int]:
    """How many cases of each kind."""
    return dict(Counter(one.case.kind for one in asked))


def first_of_each(asked: Sequence[Asked]) -> list[Asked]:
    """The first case of each kind."""
    found: dict[str, Asked] = {}
    for one in asked:
        found.setdefault(one.case.kind, one)
    return list(found.values())


def shown(one: Asked) -> dict[str, Any]:
    """A finding as people read it: the end of the response, the gold, the value."""
    case = one.case
    end = printable(case.response[-WIDTH:].replace("\n", " "), 10 * WIDTH)[-WIDTH:]  # an escape has up to 10 characters
    return {"kind": case.kind, "right": case.right, "response": end, "gold": case.gold, "value": one.value}


def report(found: dict[str, Any]) -> str:
    """The findings as lines of text."""
    head = f"{found['reward']}, called as {found['framework']} calls it"
    if found["setting"] is None:
        told = "\n".join(f"  {count} times: {why}" for why, count in found["answers"].items())
        return (
            f"{head}\n\nIt does not tell a plain right answer from a wrong one in any of {len(LAYOUTS)} layouts "
            f"({', '.join(LAYOUTS)}).\nA run with it learns nothing about answers. The right answers got:\n{told}\n"
            f"The most that a wrong answer got: {found['wrong_at_most']}"
        )
    how, wrong = found["setting"], found["asked"] - found["right"]
    left = f"; {found['left']} were left when the time was over" if found["left"] else ""
    lines = [head, f"It reads answers as `{how['answers']}` and golds as `{how['golds']}`.", ""]
    for key, what, of in (
        ("paid", "wrong answers that it pays", wrong),
        ("refused", "right answers that it refuses", found["right"]),
        ("no_value", "cases without a value", found["asked"]),
    ):
        lines.append(f"{sum(found[key].values())} of {of} {what}{left if key == 'no_value' else ''}")
        lines += [f"  {count} x {kind}" for kind, count in found[key].items()]
    if found["worst"]:
        lines += ["", "The worst, by the end of the response:"]
    for one in found["worst"]:
        word = "refused" if one["right"] else "paid"
        lines.append(f"  {word} {one['value']:g}, {one['kind']}; gold {one['gold']}\n    {one['response']}")
    return "\n".join(lines)


def main() -> None:
    """The command `strict-answers`."""
    parser = argparse.ArgumentParser(prog="strict-answers", description="Is this final answer right?")
    verbs = parser.add_subparsers(required=True)
    audit = verbs.add_parser("audit", help="what your reward function pays, and what it refuses")
    audit.add_argument("reward", metavar="my.py:reward", help="your function, with TRL's, verl's or a plain signature")
    audit.add_argument("--seconds", type=float, default=10.0, help="time limit in all (default 10)")
    audit.add_argument("--each", type=float, default=1.0, help="time limit of a case, seconds (default 1)")
    audit.add_argument("--json", action="store_true", help="print the findings as JSON")
    given = parser.parse_args()
    if not given.reward.rpartition(":")[0]:
        parser.error(f"got {given.reward}; expected a file and a function, my.py:reward")
    try:
        found = audit_reward(given.reward, given.seconds, given.each)
    except CannotLoad as problem:
        parser.error(f"{given.reward} does not load: {problem}")
    print(json.dumps(found) if given.json else report(found))
    # a refused form is a matter of domain: a reward for integers need not read roots
    sys.exit(1 if found["setting"] is None or found["paid"] or found["no_value"] else 0)
