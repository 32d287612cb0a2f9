"""The damage of the public copy of DAPO-Math-17k: what is certain is repaired, the rest is dropped, all of it counted.

Somebody read `\\frac` with the escapes of a programming language, which makes a form feed and "rac". Texts from PDF
files lost the ligatures fi and ff. Some large answers went through a float.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from pmdkit.envs.math.problem import Problem, conflicts, fingerprint

# The rest of a LaTeX command by the letter that its backslash ate. After a tab or a line feed any word may follow,
# so only rests that begin no English word stand there ("an" of \tan, "u" of \nu, "o" of \to do).
RESTS = {
    "\a": ("a", "lpha|ngle|pprox"),
    "\b": ("b", "eta|inom|oxed|mod|egin|igl|igr"),
    "\t": ("t", "ext(?=[{])|imes(?![a-z])|riangle(?=[ {\\\\A-Z])|heta(?![a-z])|frac(?=[{])"),
    "\n": ("n", "abla(?![a-z])|eq(?= )|otin(?![a-z])"),
    "\v": ("v", "ec(?=[{])|arphi|ert"),
    "\f": ("f", "rac(?=[{ ])|orall|loor"),
    "\r": ("r", "ight|angle|floor|ceil|ho(?![a-z])"),
}
# A ligature beside its own letters is only a mark to take out; alone in a word it is the letters.
LIGATURES = [
    (re.compile(r"(?<=fi)\f(?=[a-z])|\f(?=fi)|(?<=i)\v(?=ff)"), ""),
    (re.compile(r"(?<![a-z])\f(?=nd\b|rst\b|tting\b)|(?<=satis)\f(?=es\b)"), "fi"),
]
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def clean(problems: Iterable[Problem]) -> tuple[list[Problem], Counter[str]]:
    """Problems without damage, and what was done, by reason.

    Problems that differ in layout alone but have different answers are dropped, all copies; those with the same
    answer are kept and counted elsewhere.
    """
    counts: Counter[str] = Counter()
    kept = []
    for problem in problems:
        text, repairs = repair(problem.problem)
        if CONTROL.search(text):
            counts["dropped: control characters of unknown meaning"] += 1
        elif float_rounded(problem.answer):
            counts["dropped: answer rounded by a float"] += 1
        else:
            counts.update(f"repaired: {what}" for what in repairs)
            kept.append(replace(problem, problem=text) if repairs else problem)
    wrong = conflicts(kept, fingerprint)
    if wrong:
        counts["dropped: conflicting answers"] = len(wrong)
    return [problem for problem in kept if problem.id not in wrong], counts


def repair(text: str) -> tuple[str, list[str]]:
    """The text with its certain damage undone, and the names of what was."""
    done = []
    repaired = text
    for control, (letter, rests) in RESTS.items():
        repaired = re.sub(f"{control}(?={rests})", rf"\\{letter}", repaired)
    if repaired != text:
        done.append("lost backslash")
    before = repaired
    for pattern, letters in LIGATURES:
        repaired = pattern.sub(letters, repaired)
    if repaired != before:
        done.append("lost ligature")
    return repaired, done


def float_rounded(answer: str) -> bool:
    """Whether an integer is too long for a float, is one all the same, and is neither round nor a power.

    2 * 10^21 and 2^60 are floats too, but of few digits in base 10 or 2, so rounding is not what made them.
    """
    if not re.fullmatch(r"-?\d{16,300}", answer):
        return False
    number = abs(int(answer))
    if number <= 2**53 or int(float(number)) != number:
        return False
    odd = number // (number & -number)
    return len(str(number).rstrip("0")) > 15 and odd >= 2**40
