"""The words that may stand around a value, by class, and those that change it; the letters and words of formulas.

The lists are in vocabulary.toml, with what each is for.
"""

import re
import tomllib
from pathlib import Path
from typing import Any

LISTS: dict[str, Any] = tomllib.loads((Path(__file__).parent / "vocabulary.toml").read_text(encoding="utf-8"))


def listed(text: str) -> frozenset[str]:
    """The set of words that a text lists."""
    return frozenset(text.split())


CHANGING = listed(LISTS["changing"])
NEGATING = listed(LISTS["negating"])
DISOWNING = listed(LISTS["disowning"])
SECOND_HAND = listed(LISTS["second_hand"])
CHANGES = listed(LISTS["changes"])
STATING = listed(LISTS["stating"])
REFERRING = listed(LISTS["referring"])
ANNOUNCING = listed(LISTS["announcing"])
ROUNDING = listed(LISTS["rounding"])
UNITS = listed(LISTS["units"]) | {word + "s" for word in listed(LISTS["units"])} | listed(LISTS["other_units"])
NOUNS = listed(LISTS["nouns"])
HEADS = listed(LISTS["heads"])
MEASURES = listed(LISTS["measures"])
ADJECTIVES = listed(LISTS["adjectives"])
ASKED = listed(LISTS["asked"])
LEAD_OF: dict[str, str] = {word: code for code, words in LISTS["lead"].items() for word in words.split()}
TAIL_OF: dict[str, str] = {word: code for code, words in LISTS["tail"].items() for word in words.split()}
TWISTED = listed(LISTS["twisted"])
GREEK = listed(LISTS["greek"])
FUNCTIONS = listed(LISTS["functions"])
MATHEMATICS = FUNCTIONS - listed("sec max min sum prod e i") | listed("and or binom frac infinity")
"Words that belong to a formula: no abbreviations of units, and none of plain English."
LETTERS = re.compile(r"(\\?)([A-Za-z]+)")


def unknowns(text: str) -> frozenset[str]:
    """Letters used as unknowns, Greek ones by name; not e, i or names of functions."""
    found: set[str] = set()
    for slash, word in LETTERS.findall(text):
        if slash:
            found |= {word} & GREEK
        elif word.lower() not in FUNCTIONS:
            found |= set(word)
    return frozenset(found - {"e", "i"})
