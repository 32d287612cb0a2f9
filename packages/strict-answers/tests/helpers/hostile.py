"""Answers that are hostile to the verifier: the rows of attacks.jsonl, and a generator of what is nearly mathematics.

A line of the file is a group: its class, what is decided and why, the gold, where the answer stands ("line" after
`Answer: `, "boxed" and "whole" as it is) and the answers. Some try to be taken for right, honest ones must be. In an
answer [text, n] is that text n times. `answers(seed)` is an endless stream of (kind, gold, response), the same for the
same seed. Nothing here judges them.
"""

import json
import random
from collections.abc import Callable, Iterator
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


# A grammar of LaTeX, mutations of what it makes, and floods.

Draw = random.Random
PLAIN = r"34 34 34 34 34 \frac{1}{2} \sqrt{2} 0.5 \pi (1,2) \{1,2\} [0,\infty) x^2+1 x^2+y^2=1 x>3"
OTHERS = (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\frac{a}{b+k}", "(x+y+z)^{3}", r"28\%", r"x \in [1,2]")
GOLDS = (*PLAIN.split(), *OTHERS)
LETTERS = "xyznabk"
FUNCTIONS = (r"\sin", r"\cos", r"\tan", r"\log", r"\ln", r"\exp", r"\arctan", r"\gcd", r"\max", r"\det", r"\cosh")
RELATIONS = ("=", "<", ">", r"\leq", r"\geq", r"\neq", r"\approx", r"\equiv", r"\in", "≤", r"\implies", r"\sim")
UNITS = ("cm", "%", r"\%", r"^\circ", r"\text{ cm}^2", "km/h", " dollars", r"\$", "°", r"\text{ or }", " percent")
CHARACTERS = (
    "\x00\x07\x1b\x7f\u0085\u00a0\u00ad\u0301\u0660\u0663\u2028\u200b\u200d\u202e\u2066\ufeff\uff13\ud800\udfff"
    "³½√π∞∑∫≤×÷𝟑😀\U000e0033\\{}()[]$^_!%&#~|'\"`<>=+-*/.,;: \n\t0123456789abcxyz"
)
OPEN, CLOSED = r"(|{|\left(|[|$|\boxed{|", r")|}|\right)|]||$"
SIGNS = r"""^ _ { } ! \frac \sqrt \left( \right) ^{ }{ \\ & \text{ = \boxed{ , % \cdot e i \pm \begin{matrix}
\end{cases} \sum \int ** // 1e9 \,"""
PIECES = tuple(SIGNS.split())


def expression(draw: Draw, depth: int = 3) -> str:
    """A term of the grammar, in most cases valid LaTeX."""
    if depth <= 0 or draw.random() < 0.2:
        return leaf(draw)
    return draw.choice(RULES)(draw, depth - 1)


def leaf(draw: Draw) -> str:
    """A number or a name."""
    return draw.choice(
        (
            lambda: str(draw.randint(0, 99)),
            lambda: str(draw.randint(0, 10 ** draw.choice((1, 3, 6, 12, 30, 80)))),
            lambda: f"{draw.uniform(-50, 50):.{draw.randint(1, 12)}f}",
            lambda: draw.choice(LETTERS),
            lambda: draw.choice((r"\pi", "e", "i", r"\infty", r"\theta", r"\emptyset", r"\alpha_{1}", "f(x)", "x_1")),
            lambda: f"{draw.randint(1, 9)}e{draw.randint(-400, 400)}",
        )
    )()


def binary(draw: Draw, depth: int) -> str:
    """Two terms and a sign between them."""
    sign = draw.choice(("+", "-", r"\cdot", r"\times", "/", "*", "", r"\pm", r"\div", ":"))
    return f"{expression(draw, depth)} {sign} {expression(draw, depth)}"


def power(draw: Draw, depth: int) -> str:
    """A base and an exponent."""
    base, exponent = expression(draw, depth), expression(draw, draw.randint(0, depth))
    return draw.choice(
        (f"({base})^{{{exponent}}}", f"{base}^{exponent}", f"{{{base}}}^{{{exponent}}}", f"{base}**{exponent}")
    )


def tower(draw: Draw, depth: int) -> str:
    """Powers of powers, closed or not."""
    levels = draw.randint(2, 6)
    return "^{".join(str(draw.randint(2, 99)) for _ in range(levels)) + "}" * draw.choice((levels - 1, levels - 1, 0))


def called(draw: Draw, depth: int) -> str:
    """A function of a term."""
    name, inner = draw.choice(FUNCTIONS), expression(draw, depth)
    return draw.choice((f"{name}({inner})", f"{name}{{{inner}}}", f"{name}^2 {inner}", f"{name} {inner}"))


def counted(draw: Draw, depth: int) -> str:
    """Binomials and factorials."""
    top, low = expression(draw, depth), expression(draw, depth)
    return draw.choice((rf"\binom{{{top}}}{{{low}}}", f"({top})!", f"{top}!", f"{top}!!", rf"{{{top} \choose {low}}}"))


def big(draw: Draw, depth: int) -> str:
    r"""Sums, products, integrals, limits."""
    name, inner = draw.choice((r"\sum", r"\prod", r"\int", r"\lim", r"\oint", "∑", r"\bigcup")), expression(draw, depth)
    if name == r"\lim":
        return rf"\lim_{{x \to {leaf(draw)}}} {inner}"
    return rf"{name}_{{k={leaf(draw)}}}^{{{leaf(draw)}}} {inner}" + (" dx" if "int" in name else "")


def matrix(draw: Draw, depth: int) -> str:
    """Matrices and cases, some to a power."""
    name, columns = draw.choice(("pmatrix", "bmatrix", "matrix", "vmatrix", "cases", "array")), draw.randint(1, 4)
    rows = [" & ".join(expression(draw, depth - 1) for _ in range(columns)) for _ in range(draw.randint(1, 4))]
    return (
        rf"\begin{{{name}}}" + r" \\ ".join(rows) + rf"\end{{{name}}}" + draw.choice(("", "^2", "^{-1}", "^{99}", "^T"))
    )


def listed(draw: Draw, depth: int) -> str:
    """Intervals, tuples, sets, lists, unions."""
    inner = ", ".join(expression(draw, depth) for _ in range(draw.randint(1, 4)))
    pair = draw.choice(("()", "[]", "(]", "[)", (r"\{", r"\}"), (r"\left(", r"\right)"), ("", ""), "]["))
    text = f"{pair[0]}{inner}{pair[1]}"
    return text + draw.choice(("", "", rf" \cup {text}", r" \setminus \{0\}", r" \cap \mathbb{R}"))


def related(draw: Draw, depth: int) -> str:
    """Relations and chains of them."""
    parts = [expression(draw, depth) for _ in range(draw.choice((2, 2, 3, 6)))]
    text = parts[0]
    for part in parts[1:]:
        text += f" {draw.choice(RELATIONS)} {part}"
    return text


def worded(draw: Draw, depth: int) -> str:
    """Words, units and fences around a term, roots and absolute values of it, or a bracket that need not close."""
    inner = expression(draw, depth)
    unit, start, end = draw.choice(UNITS), draw.choice(OPEN.split("|")), draw.choice(CLOSED.split("|"))
    forms = [f"{inner}{unit}", rf"\text{{{inner}}}", f"The answer is {inner}", f"{inner} or {inner}", f"$${inner}$$"]
    forms += [f"**{inner}**", rf"\sqrt{{{inner}}}", rf"\sqrt[{leaf(draw)}]{{{inner}}}", f"sqrt({inner})", f"√{inner}"]
    return draw.choice([*forms, rf"|{inner}|", rf"\lfloor {inner} \rfloor", *[start + inner + end] * 5])


def fraction(draw: Draw, depth: int) -> str:
    """Fractions in four spellings."""
    top, low = expression(draw, depth), expression(draw, depth)
    forms = [rf"\frac{{{top}}}{{{low}}}", rf"\dfrac{top}{low}", f"({top})/({low})", rf"\cfrac{{{top}}}{{1+{low}}}"]
    return draw.choice(forms)


RULES: tuple[Callable[[Draw, int], str], ...] = (
    *(binary, binary, binary, fraction, fraction, power, power, called, listed, related, worded),
    *(tower, counted, big, matrix, worded),
)


def mutated(draw: Draw, text: str) -> str:
    """One to six edits."""
    for _ in range(draw.randint(1, 6)):
        text = edited(draw, text)[:3000]
    return text


def edited(draw: Draw, text: str) -> str:
    """A character or a piece put in, over or out; a part doubled; a splice; bits flipped; all of it turned around."""
    place = draw.randint(0, len(text))
    end = min(len(text), place + draw.randint(0, 12))
    before, part, after = text[:place], text[place:end], text[end:]
    return draw.choice(
        (
            lambda: before + draw.choice(CHARACTERS) + text[place + 1 :],
            lambda: before + draw.choice(CHARACTERS) + part + after,
            lambda: before + draw.choice(PIECES) + after,
            lambda: before + part * draw.choice((2, 3, 40)) + after,
            lambda: before + after,
            lambda: before + expression(draw, 2) + part + after,
            lambda: flipped(draw, text.encode("utf-8", "surrogatepass")).decode("utf-8", "replace"),
            lambda: text[::-1].translate(str.maketrans("(){}[]", ")(}{][")),
        )
    )()


def flipped(draw: Draw, data: bytes) -> bytes:
    """One bit in twenty bytes."""
    return bytes(byte ^ (1 << draw.randint(0, 7)) if draw.random() < 0.05 else byte for byte in data)


def flood(draw: Draw) -> str:
    """Much of one thing: depth, digits, boxes, terms."""
    many = draw.choice((5, 10, 20, 50, 200, 5000))
    unit = draw.choice(
        (*PIECES, "9", "x+", "(", "34,", "2^", "Answer: ", "x^2+", r"\frac{1}{", "-", "((", "𝟑", "\u0301", "1 ", "\\")
    )
    return draw.choice(
        (
            lambda: unit * many,
            lambda: "(" * many + "34" + ")" * many,
            lambda: r"\sqrt{" * many + "2" + "}" * many,
            lambda: r"\boxed{" * many + "34" + "}" * draw.choice((many, 0)),
            lambda: "9" * many + draw.choice(("", "!", "^9", "/7", ".5", "+x")),
            lambda: "+".join(f"{draw.choice(LETTERS)}^{{{k % 9}}}" for k in range(min(many, 200))),
            lambda: "".join(
                f"({a}{draw.choice('+-')}{k})" for k, a in zip(range(min(many, 60)), LETTERS * 9, strict=False)
            ),
            lambda: "(" + "+".join(LETTERS[: draw.randint(2, 7)]) + f")^{{{many}}}",
            lambda: r"\sin(" * min(many, 40) + "x" + ")" * min(many, 40),
            lambda: "1" + "+1/(1" * min(many, 40) + ")" * min(many, 40),
        )
    )()


def answers(seed: int) -> Iterator[tuple[str, str, str]]:
    """(kind, gold, response) without end."""
    draw = random.Random(seed)
    while True:
        kind = draw.choice(("grammar", "grammar", "mutated", "mutated", "flood"))
        gold = draw.choice(GOLDS)
        if kind == "flood":
            text = flood(draw)
        else:
            text = expression(draw, draw.randint(1, 4))
            text = mutated(draw, text) if kind == "mutated" else text
        yield (
            kind,
            gold,
            draw.choice(("Answer: {}", "so\nAnswer: ${}$", "**Answer:** {}\nI am sure.")).replace("{}", text),
        )
