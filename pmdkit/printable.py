r"""Text of others on a terminal: what would steer the terminal is shown as an escape such as \x1b, and never sent."""

import unicodedata

STEERS = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"Control and format characters, lone surrogates, separators of lines and paragraphs; not blanks of a width."
KEPT = "\n\t"


def printable(text: str) -> str:
    r"""The text, with an escape for each character that moves the cursor, colours, hides or reverses.

    Model output and data rows may hold terminal commands (ESC, CSI), writing from right to left that makes a text read
    as another one, and surrogates that cannot be written at all. A newline and a tab stay.
    """
    return "".join(
        char
        if char in KEPT or unicodedata.category(char) not in STEERS
        else char.encode("unicode_escape", "surrogatepass").decode()
        for char in text
    )
