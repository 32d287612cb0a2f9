r"""Unknowns and signs in a span: an answer with one that its gold does not have is another answer, and is not parsed.

\frac{1}{2} has no x in it. To show that x - x + 34 is 34 takes algebra without a bound, and nobody answers so.
"""

import re

from pmdkit.envs.math_answers.conventions import FUNCTIONS, NAME, TEXT, UNIT

# fmt: off
GREEK = frozenset(
    {
        "alpha", "beta", "gamma", "delta", "epsilon", "varepsilon", "zeta", "eta", "theta", "vartheta", "iota", "kappa",
        "lambda", "mu", "nu", "xi", "rho", "sigma", "tau", "upsilon", "phi", "varphi", "chi", "psi", "omega",
    }
)
# fmt: on
KNOWN = FUNCTIONS | frozenset(["arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "or", "and"])
SIGNS = frozenset("π×·∞≤≥÷√°²³±≠∪∩∈")
"Characters beyond ASCII that models write for LaTeX."
WORD = re.compile(r"(\\?)([A-Za-z]+)")
ENVIRONMENT = re.compile(r"\\(?:begin|end|mathbb) ?\{[A-Za-z*]*\}")
BELONGS = re.compile(r"(?:=|\\in(?![A-Za-z])|∈)")


def foreign(span: str, gold: str) -> str | None:
    """Why the span is not equal to the gold, unparsed: an unknown or a sign of its own. None if it has neither."""
    signs = {char for char in span if not char.isascii()} - SIGNS - set(gold)
    if signs:
        return "a character that is not used in mathematics"
    link = BELONGS.search(span)
    if link is not None and NAME.fullmatch(span[: link.start()].strip(" $(\\")):
        span = span[link.end() :]
    own = unknowns(TEXT.sub(" ", span)) - unknowns(TEXT.sub(r" \1 ", gold))
    return f"the gold has no '{min(own)}'" if own else None


def unknowns(text: str) -> set[str]:
    """Letters that stand for something, in lower case, Greek ones by name; not units, e, i and functions."""
    found: set[str] = set()
    for command, word in WORD.findall(UNIT.sub(" ", ENVIRONMENT.sub(" ", text))):
        if command:
            found |= {word.lower()} & GREEK
        elif word.lower() not in KNOWN:
            found |= set(word.lower())
    return found - {"e", "i"}
