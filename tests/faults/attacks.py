"""The rows of attacks.jsonl: responses that try to be taken for right, and honest ones that must be.

A line of the file is a group: its class, what is decided and why, the gold, where the answer stands ("line" after
`Answer: `, "boxed" and "whole" as it is) and the answers. In an answer [text, n] is that text n times.
"""

import json
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).with_name("attacks.jsonl")
PARSERLESS = ("never parsed", "huge", "place", "unicode", "control")
"Classes that rules decide: no wrong answer of theirs may reach the parser."


class Attack(NamedTuple):
    """One response with its decided outcome."""

    kind: str
    correct: bool
    gold: str
    response: str
    boxed: bool
    why: str


def attacks() -> list[Attack]:
    """All of them, in the order of the file."""
    found = []
    for line in FILE.read_text(encoding="ascii").splitlines():
        group = json.loads(line)
        for answer in group["answers"]:
            text = answer if isinstance(answer, str) else "".join(unpacked(part) for part in answer)
            response = "Answer: " + text if group["place"] == "line" else text
            found.append(
                Attack(
                    group["class"], group["correct"], group["gold"], response, group["place"] == "boxed", group["why"]
                )
            )
    return found


def unpacked(part: str | list) -> str:
    """A part of an answer that is written short."""
    return part if isinstance(part, str) else part[0] * part[1]
