"""Clean the public copy of DAPO-Math-17k: repair clear damage, drop the other damaged rows, count both.

`\\frac` was once read with the escapes of a programming language, which turned it into a form feed and "rac". Texts
from PDF files lost the ligatures fi and ff. Some large answers were rounded by a float.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from pmdkit.envs.math.problem import Problem, conflicts, fingerprint

# Control character: the letter that was lost to it together with the backslash, and the possible rests of the LaTeX
# command. Any word may follow a tab or a line feed, so rests that begin an English word are not listed for them ("an"
# of \tan, "u" of \nu, "o" of \to).
RESTS = {
    "\a": ("a", "lpha|ngle|pprox"),
    "\b": ("b", "eta|inom|oxed|mod|egin|igl|igr"),
    "\t": ("t", "ext(?=[{])|imes(?![a-z])|riangle(?=[ {\\\\A-Z])|heta(?![a-z])|frac(?=[{])"),
    "\n": ("n", "abla(?![a-z])|eq(?= )|otin(?![a-z])"),
    "\v": ("v", "ec(?=[{])|arphi|ert"),
    "\f": ("f", "rac(?=[{ ])|orall|loor"),
    "\r": ("r", "ight|angle|floor|ceil|ho(?![a-z])"),
}
# A ligature mark next to its own letters is just removed; alone in a word it is replaced by the letters.
LIGATURES = [
    (re.compile(r"(?<=fi)\f(?=[a-z])|\f(?=fi)|(?<=i)\v(?=ff)"), ""),
    (re.compile(r"(?<![a-z])\f(?=nd\b|rst\b|tting\b)|(?<=satis)\f(?=es\b)"), "fi"),
]
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def clean(problems: Iterable[Problem]) -> tuple[list[Problem], Counter[str]]:
    """The problems without damage, and counts of repaired and dropped rows, by reason.

    If problems differ only in layout but have different answers, all copies are dropped; those with the same
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
    """The text with its clear damage repaired, and the names of the repairs."""
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
    """Whether a long integer was probably rounded to a float: it is exactly one, and neither round nor a power."""
    number = abs(int(answer)) if re.fullmatch(r"-?\d{16,300}", answer) else 0
    if number <= 2**53 or int(float(number)) != number:
        return False
    odd = number // (number & -number)  # 2 * 10^21 and 2^60 are exact too, with few digits in base 10 or 2
    return len(str(number).rstrip("0")) > 15 and odd >= 2**40
