"""The table of model families on the site: each is built in small; engine, trainer and transformers are compared."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))
from generate.families import BEGIN, END, FAMILIES, PAGE, TOLERANCE, line, measure, table  # noqa: E402

pytestmark = [pytest.mark.nightly, pytest.mark.filterwarnings("ignore")]  # transformers' remarks on each family
ROWS = {}


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_family_agrees_with_transformers_or_is_refused(family):
    """Nothing between the two: a model that is not refused gives transformers' log-probabilities and gradient."""
    found = measure(family)
    ROWS[family.name] = line(family, found)
    if not found.refused:
        assert max(found.engine, found.stock, found.gradient) < TOLERANCE
    else:
        assert len(found.refused) > 40  # a sentence


def test_the_page_has_what_was_found():
    """After the tests above: `python docs/generate/families.py` writes the table anew."""
    if len(ROWS) < len(FAMILIES):
        pytest.skip("needs the rows of all families: run the whole file")
    shown = (ROOT / PAGE).read_text().split(BEGIN)[1].split(END)[0]
    assert shown.strip() == table(list(ROWS.values())).strip()
