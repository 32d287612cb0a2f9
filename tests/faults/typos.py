"""Every key of every table, and what one slip of a finger makes of a name."""

from collections.abc import Iterator
from functools import cache
from random import Random

LETTERS = "abcdefghijklmnopqrstuvwxyz_"
KEYBOARD = LETTERS + "0123456789-."


def slips(name: str, letters: int = 1) -> Iterator[str]:
    """Names that one slip makes of this one, each once: a letter too few, swapped, too many or another; case; dashes.

    Args:
        name: of a key, a table or an option.
        letters: how many letters are tried at each place where there is one too many or another.
    """
    rng = Random(name)
    places = range(len(name))
    made = [name[:i] + name[i + 1 :] for i in places]
    made += [name[:i] + name[i + 1] + name[i] + name[i + 2 :] for i in places[:-1]]
    for i in range(len(name) + 1):
        for letter in rng.sample(LETTERS, min(letters, len(LETTERS))):
            made += [name[:i] + letter + name[i:], name[:i] + letter + name[i + 1 :]]
    made += [name.upper(), name.capitalize(), name.swapcase(), name + "s", name[0] + name]
    made += [name.replace("_", "-"), name.replace("_", ""), name.replace("-", "_"), name.replace("-", "")]
    yield from dict.fromkeys(slip for slip in made if slip not in (name, ""))


@cache
def all_slips(name: str) -> frozenset[str]:
    """Every name that one slip makes of this one: what a hint may stand for."""
    cut = [(name[:i], name[i:]) for i in range(len(name) + 1)]
    edits = {a + b[1:] for a, b in cut if b} | {a + b[1] + b[0] + b[2:] for a, b in cut if len(b) > 1}
    edits |= {a + c + b for a, b in cut for c in KEYBOARD} | {a + c + b[1:] for a, b in cut if b for c in KEYBOARD}
    return frozenset(edits | set(slips(name)))
