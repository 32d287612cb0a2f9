"""Generated pages: nothing is dropped, and what would make a page wrong stops the build."""

import json
import re
from pathlib import Path

import nbformat
import pytest
from finish import finished, list_versions
from generate import address
from generate.adaptive_tau import write_adaptive_tau
from generate.annotated import paper_equations, pulled, told, write_annotated
from generate.ledger import own_macros, readable, write_ledger
from generate.lessons import split_alt, write_page
from generate.metric_glossary import write_metrics
from generate.one_step import traced
from generate.paper_index import write_paper_index
from generate.tree import PAGES, with_tree

from pmdkit import theory
from pmdkit.objectives import OBJECTIVES
from pmdkit.observe.glossary import GLOSSARY, ON_REQUEST
from pmdkit_lab.ledger import claims, equations, items

ROOT = Path(__file__).parents[2]


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


def test_on_a_page_the_picture_comes_before_its_folded_code_and_exercises_stay_open(tmp_path):
    """Code that shows nothing is folded too; the cell of an exercise and its check are as in the notebook."""
    notebook = lesson("# alt: A line.\nplot()")
    setup = nbformat.v4.new_code_cell("import numpy")
    fill = nbformat.v4.new_code_cell("def answer(): ...", metadata={"tags": ["exercise", "900.1"]})
    notebook.cells = [notebook.cells[0], setup, notebook.cells[1], fill]
    write_page(notebook, tmp_path / "900_what.py", tmp_path)
    text = (tmp_path / "900.md").read_text()
    places = [text.index(part) for part in ("Set-up code", "import numpy", "A line.", "Code of the picture", "plot()")]
    assert places == sorted(places)
    assert text.count('<details class="lesson-code"') == text.count("</details>") == 2
    assert "</details>\n\n```python\ndef answer(): ...\n```" in text


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


@pytest.mark.slow
def test_the_ledger_shows_every_claim_once(tmp_path):
    page = tmp_path / "ledger.md"
    assert write_ledger(page, claims()) == len(claims())
    text = page.read_text()
    assert [text.count(f"(`{claim['id']}`) |") for claim in claims()] == [1] * len(claims())


def test_the_ledger_refuses_a_verdict_it_does_not_know(tmp_path):
    with pytest.raises(SystemExit, match="expected one of holds"):
        write_ledger(tmp_path / "ledger.md", [{"id": "x", "kind": "lemma", "verdict": "true"}])


@pytest.mark.slow
def test_the_annotated_paper_shows_equation_code_and_test(tmp_path):
    page = tmp_path / "annotated.md"
    count = write_annotated(page, claims())
    statements = re.split(r"^\?\?\? ", page.read_text(), flags=re.MULTILINE)[1:]
    assert len(statements) == count == sum(len(section["statement"]) for section in told())
    for statement in statements:
        code = [re.search(rf"`{path}[\w/]+\.py: \w+`", statement) for path in ("pmdkit/", "tests/")]
        assert all(code), statement[:80]
        assert ("$$" in statement) or not statement.startswith("disagrees") or "gains" in statement, statement[:80]
        assert statement.count("data-counterexample=") == statement.startswith("disagrees"), statement[:80]
    assert page.read_text().count("```python") > count


def test_the_annotated_paper_tells_every_theorem_proposition_lemma_and_table():
    claimed = {statement["claim"] for section in told() for statement in section["statement"]}
    wanted = {item["id"] for item in items() if item["kind"] in ("theorem", "proposition", "lemma", "table")}
    steps = {"lem:bernstein_excess_self_bounding"}  # a tool of a proof
    assert {name for name in wanted - steps if not any(c == name or c.startswith(f"{name}:") for c in claimed)} == set()
    assert {claim["id"] for claim in claims() if claim["verdict"] == "disagrees"} <= claimed


def test_the_paper_equation_stands_under_its_own_statement():
    """Once the mixed problem stood under the KL one, and Theorem 1 had a length."""
    displays = {row["id"]: row["tex"] for row in equations()}
    known = {claim["id"]: claim for claim in claims()}
    first = {}
    for section in told():
        for statement in section["statement"]:
            found = paper_equations(statement, known[statement["claim"]], displays)
            first.setdefault(statement["claim"], " ".join(found))
    assert r"\chi^2" not in first["eq:pmd_kl_subproblem"]
    assert r"\text{KL}" in first["eq:pmd_kl_subproblem"]
    assert r"\exp\Big(\frac{\Delta_y}{\tau}-W\Big(\frac{\lambda}{\tau^2}" in first["thm:pmdmean_solution"]
    assert "vert" not in first["thm:pmdmean_solution"]
    assert r"\frac{\lambda}{2\tau}\chi^2" in first["prop:mixed_subproblem"]
    assert r"\frac{1}{n-1}\sum_{j\neq i}r(y_j)" in first["eq:loo-s-mean"]
    assert first["fact:smaller_target_error"] == "", "a finding of our own is no equation of the paper"


def test_macros_of_the_paper_are_written_out():
    written = own_macros(r"\E[\abs{e^{s_{\pi_{t+1}}}-1}]\leq\KL(\pi~\|~\pi_t)\cW(z)")
    assert written == (r"\mathbb{E}[\left\lvert e^{s_{\pi_{t+1}}}-1\right\rvert ]\leq\mathrm{KL}(\pi\ \|\ \pi_t)W(z)")
    assert readable("is *exactly* 5% of $\\abs{x}$ [...]") == r"is \*exactly\* 5% of $\left\lvert x\right\rvert $ …"


def test_pulled_code_is_the_source_without_its_docstring():
    docstring, code = pulled("pmdkit/errors.py", "unknown")
    assert docstring.startswith("`unknown objective")
    assert code.startswith("def unknown(kind: str, name: str")
    assert '"""' not in code
    compile(code, "pulled", "exec")


def test_code_that_is_gone_stops_the_build():
    with pytest.raises(SystemExit, match=r"has no function or class lost; the ledger names one"):
        pulled("pmdkit/errors.py", "lost")


def test_a_claim_that_is_gone_stops_the_build(tmp_path):
    with pytest.raises(SystemExit, match="which the ledger has not"):
        write_annotated(tmp_path / "annotated.md", claims()[:3])


def test_every_metric_has_a_row(tmp_path):
    page = tmp_path / "metrics.md"
    columns = [*GLOSSARY, *ON_REQUEST]
    assert write_metrics(page) == len(columns)
    assert [page.read_text().count(f"| `{name}` |") for name in columns] == [1] * len(columns)


@pytest.mark.slow
def test_the_study_has_a_table_per_cell(tmp_path):
    cells = write_adaptive_tau(tmp_path / "adaptive-tau.md", ROOT / "benchmarks" / "results")
    text = (tmp_path / ".adaptive-tau.md").read_text()
    assert text.count("| arm | tuned to |") == cells == 7 + 3
    assert (tmp_path / "adaptive-tau.svg").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_tree_is_that_of_the_sources(page):
    text = (ROOT / page).read_text()
    assert text == with_tree(text), "run python docs/generate/tree.py"


@pytest.mark.parametrize("page", address.PAGES)
def test_badges_links_and_ways_to_install_follow_from_one_address(page):
    """While it is empty there is none; with one, each of them leads to it, and what a badge names is there."""
    text = (ROOT / page).read_text(encoding="utf-8")
    there = "https://github.com/someone/pmdkit"
    assert text == address.with_address(text, address.repository()), "run python docs/generate/address.py"
    marked = [found["name"] for found in address.PART.finditer(text)]
    assert marked
    empty, full = (address.with_address(text, one) for one in ("", there))
    for found in address.PART.finditer(empty):
        assert "https://" not in found[0]
        assert "pip install pmdkit" not in found[0]
    for name in re.findall(rf"{there}/actions/workflows/([\w.]+)", full):
        assert (ROOT / ".github" / "workflows" / name).is_file()
    assert full.count(there) + full.count("https://someone.github.io/pmdkit/") >= len(marked)
    assert address.with_address(full, "") == empty


def test_an_address_that_is_none_stops_the_build(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[project.urls]\nRepository = "pmdkit"\n')
    with pytest.raises(SystemExit, match=r"expected https://github\.com/OWNER/NAME"):
        address.repository(tmp_path)


def test_the_changelog_has_the_version():
    assert f"\n## [{address.version()}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\nversion: {address.version()}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_versions_are_listed_by_their_numbers_and_the_newest_release_comes_first(tmp_path):
    with pytest.raises(SystemExit, match="holds no site"):
        list_versions(tmp_path)
    for name in ("main", "0.9", "0.10"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").write_text("")
    assert list_versions(tmp_path) == ["0.10", "0.9", "main"]
    assert json.loads((tmp_path / "versions.json").read_text())[0] == {
        "version": "0.10",
        "title": "0.10",
        "aliases": ["latest"],
    }
    assert 'url=0.10/"' in (tmp_path / "index.html").read_text()


def test_a_finished_page_is_the_page_with_lighter_code():
    page = '<code><span class="n">tau</span><span class="w"> </span><span class="o">=</span></code>'
    assert finished(page) == '<code>tau <span class="o">=</span></code>'


@pytest.mark.slow
def test_a_traced_step_has_the_calls_of_the_loop_in_order():
    calls = traced("bandit")
    names = [call["name"] for call in calls]
    order = [names.index(name) for name in ("inline", "BanditLearner.rollout", "BanditTask.reward", "credit")]
    assert order == sorted(order)
    assert order[-1] < names.index("BanditLearner.update")
    depth = {call["name"]: call["depth"] for call in calls}
    assert depth["BanditLearner.rollout"] == depth["inline"] + 1


@pytest.mark.nightly
def test_few_calls_lie_between_the_loop_and_the_sampler_of_a_language_model():
    """loop.inline, learner.rollout, engine.generate, and then tokens are sampled."""
    way = {call["name"]: call["depth"] for call in traced("llm")}
    assert way["CausalLearner.rollout"] == way["inline"] + 1
    assert min(depth for name, depth in way.items() if name.endswith(".generate")) == way["inline"] + 2


def test_the_first_page_quotes_numbers_of_the_theory():
    """The share of the gap that one exact step closes, for both methods, as the page says it."""
    text = " ".join((ROOT / "docs" / "index.md").read_text(encoding="utf-8").split())
    said = r"pass rate of ([\d.]+) and τ = ([\d.]+), one exact step closes (\d+) % of the gap instead of all of it"
    quoted = re.search(said, text)
    assert quoted
    p, tau, percent = (float(number) for number in quoted.groups())
    assert round(100 * float(theory.binary(p, tau, "pmd-mean").eta)) == percent
    assert float(theory.binary(p, tau, "pmd-part").eta) > 0.999
    large = [float(theory.binary(p, 10.0, method).eta) for method in ("pmd-mean", "pmd-part")]
    assert large[0] == pytest.approx(large[1], rel=0.01)
