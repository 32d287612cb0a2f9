"""Answers that are hostile to the verifier: the rows of attacks.jsonl, and a generator of what is nearly an answer.

A line of the file is a group: its class, what is decided and why, the gold, where the answer stands ("line" after
`Answer: `, "boxed" and "whole" as it is) and the answers. Some try to be taken for right, honest ones must be. In an
answer [text, n] is that text n times. `answers(seed)` is an endless stream of (gold, response), the same for the same
seed; `cut_or_changed` is every prefix and every change of one token of the labelled answers. Nothing here judges them.
"""

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).parents[1] / "attacks.jsonl"
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


# By chance: labelled answers joined by signs, damaged in one place, and floods.

CHARACTERS = (
    "\x00\x07\x1b\x7f\u0085\u00a0\u00ad\u0301\u0660\u0663\u2028\u200b\u200d\u202e\u2066\ufeff\uff13\ud800\udfff"
    "³½√π∞∑∫≤×÷𝟑😀\U000e0033\\{}()[]$^_!%&#~|'\"`<>=+-*/.,;: \n\t0123456789abcxyz"
)
COMMANDS = r"""+ - \cdot / * ^ ** = < \leq \neq \in \pm , ! _ { } ^{ }{ \frac \sqrt \left( \right) \\ & \text{ \boxed{ %
e i \sin \log \binom \begin{matrix} \end{cases} \sum \int 1e9 \,"""
SIGNS = tuple(COMMANDS.split())


def damaged(draw: random.Random, text: str) -> str:
    """Something else in one place: another character, a sign, a part many times, a part less, a bit of many bytes."""
    place = draw.randrange(len(text) + 1)
    end = min(len(text), place + draw.randrange(1, 8))
    before, part, after = text[:place], text[place:end], text[end:]
    return draw.choice(
        (
            before + draw.choice(CHARACTERS) + part + after,
            before + draw.choice(SIGNS) + after,
            before + part * draw.choice((2, 3, 40)) + after,
            before + after,
            text[::-1].translate(str.maketrans("(){}[]", ")(}{][")),
            bytes(
                b ^ (1 << draw.randrange(7)) if draw.random() < 0.05 else b
                for b in text.encode("utf-8", "surrogatepass")
            ).decode("utf-8", "replace"),
        )
    )


def flood(draw: random.Random) -> str:
    """Much of one thing: depth, digits, boxes, terms."""
    many = draw.choice((5, 10, 20, 50, 200, 5000))
    unit = draw.choice(
        (*SIGNS, "9", "x+", "(", "34,", "2^", "Answer: ", "x^2+", r"\frac{1}{", "((", "𝟑", "\u0301", "1 ")
    )
    return draw.choice(
        (
            unit * many,
            "(" * many + "34" + ")" * many,
            r"\sqrt{" * many + "2" + "}" * many,
            r"\boxed{" * many + "34" + "}" * draw.choice((many, 0)),
            "9" * many + draw.choice(("", "!", "^9", "/7", ".5", "+x")),
            "(" + "+".join("xyznabk"[: draw.randint(2, 7)]) + f")^{{{many}}}",
            r"\sin(" * min(many, 40) + "x" + ")" * min(many, 40),
            "1" + "+1/(1" * min(many, 40) + ")" * min(many, 40),
        )
    )


def answers(seed: int) -> Iterator[tuple[str, str]]:
    """(gold, response) without end."""
    draw = random.Random(seed)
    labelled = [json.loads(line) for line in FILE.with_name("answers.jsonl").read_text("ascii").splitlines()]
    while True:
        row = draw.choice(labelled)
        text = row["answer"]
        for _ in range(draw.randrange(3)):
            text += draw.choice(SIGNS) + draw.choice((row["gold"], draw.choice(labelled)["answer"]))
        text = draw.choice((text, damaged(draw, text), damaged(draw, damaged(draw, text)), flood(draw)))
        yield row["gold"], draw.choice(("Answer: {}", "so\nAnswer: ${}$", "**Answer:** {}\nSure.")).replace("{}", text)


# Every labelled answer cut off at every place, and with one token changed.

TOKEN = re.compile(r"\\[A-Za-z]+|\\.|[0-9]+|[A-Za-z]+|\s+|.", re.DOTALL)
JUNK = (r"\approx", "≈", "=", "^", "_", "{", "}", "(", "]", ",", ".", "/", "-", "%", "°", "'", ":", "|", "e9", r"\frac")
JUNK += (
    r"\sqrt", r"\pm", r"^\circ", r"\overline", r"\cup", r"\in", "<", "!", " or ", " and ", "1e999", "½", "⁻", "\x00",
)  # fmt: skip
ENDING = 200
"Characters at the end of a long response that are cut off and changed."


def labelled() -> list[tuple[str, str]]:
    """(gold, response) of every labelled answer in the four files, each once and in a fixed order."""
    rows: set[tuple[str, str]] = {(row.gold, row.response) for row in attacks()}
    for name in ("answers", "suites", "third"):
        for line in FILE.with_name(f"{name}.jsonl").read_text("utf-8").splitlines():
            row = json.loads(line)
            if name == "third":
                kinds = (triples for key, triples in row.items() if key != "kind")
                rows |= {(gold, text) for triples in kinds for gold, text, _ in triples}
            else:
                texts = (row.get(key) for key in ("answer", "prediction", "response"))
                rows |= {(row["gold"], text) for text in texts if isinstance(text, str) and "gold" in row}
    return sorted((gold, text if "nswer:" in text else f"Answer: {text}") for gold, text in rows)


def cut_or_changed(response: str, draw: random.Random) -> Iterator[str]:
    """Every prefix; every token deleted, doubled, exchanged with the next one, and replaced by a junk token."""
    start = max(len(response) - ENDING, 0)
    for end in range(start, len(response)):
        yield response[:end]
    tokens = TOKEN.findall(response[start:])
    for n, token in enumerate(tokens):
        before, after = response[:start] + "".join(tokens[:n]), tokens[n + 1 :]
        yield before + "".join(after)
        yield before + token * 2 + "".join(after)
        yield before + "".join([*after[:1], token, *after[1:]])
        yield before + draw.choice(JUNK) + "".join(after)
