"""A Griffe extension: the beats of a docstring (Source, Differs, Good values, ...) become paragraphs on a page.

In the code they are on consecutive lines, to be read at a glance. The paper index uses `split_beats` too.
"""

import re
from itertools import zip_longest
from typing import Any

import griffe

BEATS = ("Source", "Differs", "Shapes", "Good values", "Watch")
START = re.compile(rf"(?:^|(?<=[.;)] )) *({'|'.join(BEATS)}): ", re.MULTILINE)


class DocstringBeats(griffe.Extension):
    """Rewrites every docstring that has beats."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Griffe calls this for every module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = paragraphs(obj.docstring.value)


def paragraphs(docstring: str) -> str:
    """The docstring with a blank line before each beat and its name in bold."""
    return START.sub(lambda beat: f"\n\n**{beat[1]}:** ", docstring)


def split_beats(docstring: str) -> dict[str, str]:
    """The text of each beat, on one line. A beat ends at the next beat or at a blank line."""
    found = list(START.finditer(docstring))
    texts = {}
    for beat, after in zip_longest(found, found[1:]):
        text = docstring[beat.end() : after.start() if after else None]
        texts[beat[1]] = " ".join(text.split("\n\n")[0].split())
    return texts
