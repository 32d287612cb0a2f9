"""A Griffe extension: the beats of a docstring (Source, Differs, Good values, ...) become paragraphs on a page.

In the code they are on consecutive lines, to be read at a glance. The paper index uses `split_beats` too. Below each
class and function of a module stands where its code is: most pages of the API do not show it.
"""

import os
import re
from itertools import zip_longest
from pathlib import Path
from typing import Any

import griffe

BEATS = ("Source", "Differs", "Shapes", "Good values", "Watch")
ROOT = Path(__file__).parents[2]
START = re.compile(rf"(?:^|(?<=[.;)] )) *({'|'.join(BEATS)}): ", re.MULTILINE)


class DocstringBeats(griffe.Extension):
    """Rewrites every docstring that has beats, and names the code of what a module defines."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Griffe calls this for every module, class, function and attribute."""
        if obj.docstring is not None:
            code = place(obj) if obj.parent is not None and obj.parent.is_module else ""
            obj.docstring.value = paragraphs(obj.docstring.value) + code


def place(obj: griffe.Object) -> str:
    """A paragraph with file and line of a class or function, a link where the sources have an address; else nothing."""
    if not (obj.is_class or obj.is_function) or not isinstance(obj.filepath, Path):
        return ""
    file = obj.filepath.resolve().relative_to(ROOT).as_posix()
    address = os.environ.get("REPOSITORY")
    name = f"[`{file}`]({address}/blob/main/{file}#L{obj.lineno})" if address else f"`{file}`"
    return f"\n\n**Code:** {name}, line {obj.lineno}."


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
