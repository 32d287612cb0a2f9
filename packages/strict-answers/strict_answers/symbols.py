"""Letters of a formula: which stand for something unknown, and which spell mathematics."""

import re

from strict_answers.vocabulary import listed

# fmt: off
GREEK = frozenset(
    {
        "alpha", "beta", "gamma", "delta", "epsilon", "varepsilon", "zeta", "eta", "theta", "vartheta", "iota", "kappa",
        "lambda", "mu", "nu", "xi", "rho", "sigma", "tau", "upsilon", "phi", "varphi", "chi", "psi", "omega",
    }
)
# fmt: on
LETTERS = re.compile(r"(\\?)([A-Za-z]+)")
FUNCTIONS = listed(
    """
    sqrt sin cos tan cot sec csc log ln exp pi abs floor ceil gcd lcm max min sum prod e i lg arcsin arccos arctan
    arccot sinh cosh tanh coth infty
    """
)
"Letters that spell mathematics, not unknowns."


def unknowns(text: str) -> frozenset[str]:
    """Letters that stand for something, Greek ones by name, except for e, i and functions."""
    found: set[str] = set()
    for slash, word in LETTERS.findall(text):
        if slash:
            found |= {word} & GREEK
        elif word.lower() not in FUNCTIONS:
            found |= set(word)
    return frozenset(found - {"e", "i"})
