"""Generated pages: nothing is dropped, and what would make a page wrong stops the build."""

import nbformat
import pytest
from generate.ledger import write_ledger
from generate.lessons import split_alt, write_page
from generate.paper_index import write_paper_index

from pmdkit.ledger import claims
from pmdkit.objectives import OBJECTIVES


def lesson(code):
    """A notebook of a title and one executed cell that draws."""
    picture = nbformat.v4.new_output("display_data", {"image/svg+xml": "<svg/>", "text/plain": "<Figure>"})
    cell = nbformat.v4.new_code_cell(code, outputs=[picture])
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# 900: What?"), cell])


def test_alt_text_is_joined_and_leaves_the_code():
    alt, code = split_alt("# alt: A line\n#   that goes up.\n# why it is so\nplot()")
    assert alt == "A line that goes up."
    assert code == "# why it is so\nplot()"


def test_a_picture_gets_its_alt_text(tmp_path):
    write_page(lesson("# alt: A line.\nplot()"), tmp_path / "900_what.py", tmp_path)
    assert "![A line.](900/1.svg)" in (tmp_path / "900.md").read_text()
    assert (tmp_path / "900" / "1.svg").read_text() == "<svg/>"


def test_a_picture_without_alt_text_stops_the_build(tmp_path):
    with pytest.raises(SystemExit, match="without alternative text"):
        write_page(lesson("plot()"), tmp_path / "900_what.py", tmp_path)


def test_the_paper_index_has_a_row_for_every_objective(tmp_path):
    page = tmp_path / "index.md"
    assert write_paper_index(page, OBJECTIVES, []) == len(OBJECTIVES)
    for name, objective in OBJECTIVES.items():
        link = f"[`{name}`](api/objectives.md#{objective.__module__}.{objective.__qualname__})"
        assert link in page.read_text()


def test_an_objective_without_a_source_stops_the_build(tmp_path):
    class Nameless:
        """No source."""

    with pytest.raises(SystemExit, match="has no 'Source:' line"):
        write_paper_index(tmp_path / "index.md", {"nameless": Nameless}, [])


def test_the_ledger_shows_every_claim_once(tmp_path):
    page = tmp_path / "ledger.md"
    assert write_ledger(page, claims()) == len(claims())
    text = page.read_text()
    assert [text.count(f"(`{claim['id']}`) |") for claim in claims()] == [1] * len(claims())


def test_the_ledger_refuses_a_verdict_it_does_not_know(tmp_path):
    with pytest.raises(SystemExit, match="expected one of holds"):
        write_ledger(tmp_path / "ledger.md", [{"id": "x", "kind": "lemma", "verdict": "true"}])
