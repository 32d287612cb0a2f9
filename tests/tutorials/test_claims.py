"""What a lesson's prose says of its outputs is a claim; each is checked on the executed lesson and seen to fail.

The lessons are executed by `docs/build.py`, which stops at a claim that is false, or that stays true when its numbers
are changed. The first test of the night at the end does the same, with the same cache. The second one executes them as
other processors would: the kernels of torch and NumPy for those add numbers in another order, and training makes much
of the last bit.
"""

import platform
import re
import sys
from pathlib import Path

import jupytext
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))
from generate import claims, lessons  # noqa: E402

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


NAMES = {"p": 0.375, "rates": [0.2, 0.9], "names": ["a"]}


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("the pass rate is 0.38", "said(p)"),
        ("from 0.2 to 0.9 in 10 steps", "said(*rates, None)"),
        ("about 0.4", "about(p)"),
        ("0.2 or more", "min(rates) >= quoted[0]"),
        ("it rises", "rates[0] < rates[1]"),
        ("down to \N{MINUS SIGN}0.4", "said(-p)"),
        ("costs 3,000", "said(8000 * p)"),
    ],
)
def test_a_true_claim_holds_and_fails_with_another_number(text, expression):
    claims.check(text, expression, NAMES)
    claim = claims.Claim(text, expression)
    for _, false in claims.falsified(claim):
        assert not all(claims.holds(one, numbers, NAMES) for one, numbers in false)


@pytest.mark.parametrize(
    ("text", "expression", "error", "told"),
    [
        ("the pass rate is 0.39", "said(p)", AssertionError, "not so.*p = 0.375"),
        ("it falls", "rates[0] > rates[1]", AssertionError, "not so"),
        ("0.38 of 10", "said(p)", ValueError, "1 values for 2 numbers"),
        ("all are small", "all(x < 1 for x in [])", AssertionError, "claims nothing"),
        ("0.2 or more", "quoted[0] == quoted[0] and min(rates) >= 0.2", AssertionError, "claims nothing"),
        ("it is so", "True", ValueError, "a fact is a comparison"),
    ],
)
def test_a_claim_that_is_false_or_cannot_be_is_refused(text, expression, error, told):
    with pytest.raises(error, match=told):
        claims.check(text, expression, NAMES)


def test_a_claim_is_checked_after_its_text_and_no_reader_sees_it():
    source = "It is 2.\n<!-- claim: is 2 ::\n  said(1 + 1) -->\n\nMore."
    notebook = jupytext.reads(f'# %% [markdown]\n"""\n{source}\n"""\n\n# %%\n1 + 1', fmt="py:percent")
    text, check, code = lessons.with_claims(notebook.cells)
    assert "claim" in check.metadata
    assert code.source == "1 + 1"
    assert claims.without_claims(text.source) == "It is 2.\n\nMore."
    exec(check.source, {})
    with pytest.raises(AssertionError, match="not so"):
        exec(check.source.replace("1 + 1", "1 + 2"), {})
    with pytest.raises(ValueError, match="a claim is written"):
        claims.claims_of("<!-- claim: no expression -->")


@pytest.mark.nightly
@each_lesson
def test_the_claims_of_the_executed_lesson_hold(path):
    """Executed, or taken from the cache of the site's build, where nothing comes in whose claims did not hold."""
    cache = ROOT / "docs" / ".cache"
    cache.mkdir(exist_ok=True)
    executed = cache / f"{path.stem}-{lessons.digest(path, ROOT / 'pmdkit')}.ipynb"
    lessons.run(path, executed, path.parent)
    assert executed.exists()


# read by NumPy, torch, oneDNN and MKL when they are loaded
PROCESSORS = {
    "avx2": {
        "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    },
    "sse": {
        "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR",
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
    },
}


@pytest.mark.nightly
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the variables choose among kernels for x86-64")
@pytest.mark.parametrize("processor", PROCESSORS)
@each_lesson
def test_the_claims_hold_on_other_processors(path, processor):
    lessons.execute(jupytext.read(path), path.parent, PROCESSORS[processor])
