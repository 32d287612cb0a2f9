"""What a lesson's prose says of its outputs is a claim; each is checked on the executed lesson and seen to fail.

The lessons are executed by `make docs`, which stops at a claim that is false, or that stays true when its numbers are
changed; `make test` leaves the longest to it and to the night. At night they are executed as an older processor would:
its kernels of torch and NumPy add numbers in another order, and training makes much of the last bit.
"""

import platform
import re
from pathlib import Path

import jupytext
import pytest
from generate import claims, lessons

ROOT = Path(__file__).parents[2]
LESSONS = sorted((ROOT / "tutorials").glob("[0-9]*.py"))
each_lesson = pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
QUOTED = re.compile(r"(?<![\w.-])(?:\d+\.\d+|\d+ ?%)")
MATHS = re.compile(r"\$\$.*?\$\$|\$[^$]*\$|`[^`]*`|\]\([^)]*\)|arXiv:\S+", re.DOTALL)


def prose_of(path):
    """The text of a lesson without its claims, and the claims."""
    cells = [cell.source for cell in jupytext.read(path).cells if cell.cell_type == "markdown"]
    text = " ".join(" ".join(claims.without_claims(source).split()) for source in cells)
    return text, [claim for source in cells for claim in claims.claims_of(source)]


@each_lesson
def test_a_claim_stands_in_the_prose_and_can_be_false(path):
    text, found = prose_of(path)
    assert len(found) >= 5
    for claim in found:
        assert claim.text in text, claim.text
        assert list(claims.falsified(claim)), claim.expression


@each_lesson
def test_every_number_that_the_prose_reads_off_an_output_is_a_claim(path):
    """Decimals and percentages between the first picture and the exercises; the questions of Predict are no outputs."""
    cells = jupytext.read(path).cells
    first = next(i for i, cell in enumerate(cells) if cell.cell_type == "code")
    _, found = prose_of(path)
    text = "\n\n".join(cell.source for cell in cells[first:] if cell.cell_type == "markdown")
    text = re.sub(r"^## Predict$.*?^## ", "## ", text.split("\n## Exercise")[0], flags=re.DOTALL | re.MULTILINE)
    text = " ".join(MATHS.sub(" ", claims.without_claims(text)).split())
    for claim in found:
        for piece in filter(QUOTED.search, map(str.strip, MATHS.split(claim.text))):
            text = text.replace(piece, " ")
    assert QUOTED.findall(text) == []


# read by NumPy, torch, oneDNN and MKL when they are loaded: the kernels of an older processor
OLDER = {
    "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR",
    "ATEN_CPU_CAPABILITY": "default",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
}


@pytest.mark.nightly
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the variables choose among kernels for x86-64")
@each_lesson
def test_the_claims_hold_on_another_processor(path):
    lessons.execute(jupytext.read(path), path.parent, OLDER)
