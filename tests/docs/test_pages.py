"""What pages say is what the code gives, and what would make a page wrong stops the build."""

import json
import re
from importlib import import_module
from pathlib import Path

import nbformat
import numpy as np
import pytest
from check import problems
from finish import finished, forward, list_versions
from generate import address, biography, terminal
from generate.claims_page import by_section, paper_equations, write_claims
from generate.cloud import FOLDER, cloud_files
from generate.decks import split
from generate.lessons import write_page
from generate.on_a_gpu import on_a_gpu
from generate.one_step import traced
from generate.proofs import INCLUDED, name_of, write_proofs
from scipy import stats

from pmdkit import theory, train
from pmdkit_course import ids
from pmdkit_course.kit import weeks
from pmdkit_lab.ledger import claims, equations, items

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_number_and_the_picture_of_the_readme_come_from_a_run(tmp_path):
    """The marked sentence to two digits of the pass rate. Other numbers differ between processors, words do not."""
    shown, summary = terminal.ran(tmp_path)
    first, last, steps = re.findall(r"from ([\d.]+) to ([\d.]+) in (\d+) steps", README)[0]
    assert float(first) == pytest.approx(summary["pass_rate_first"], abs=0.02)
    assert float(last) == pytest.approx(summary["pass_rate_last"], abs=0.02)
    assert int(steps) == summary["steps"]
    kept = (ROOT / "docs" / "assets" / "terminal.svg").read_text(encoding="utf-8")
    assert terminal.words(terminal.picture(shown)) == terminal.words(kept), "run python docs/generate/terminal.py"


def test_the_moving_picture_of_the_readme_shows_the_recorded_run():
    """It is the stored one, and its frames have as many right answers as the steps have rewards of 1."""
    run = biography.biography()
    drawn = biography.picture(run)
    assert drawn == biography.PICTURE.read_text(encoding="utf-8"), "run python docs/build.py"
    (groups,) = (prompt["groups"] for prompt in run["prompts"] if prompt["name"] == biography.SUM)
    frames = drawn.split('<g class="f ')[1:]
    assert [frame.count("✓") for frame in frames] == [sum(group["reward"]) for group in groups]
    assert len(drawn) < 150_000
    assert "<script" not in drawn


def test_the_loss_of_the_readme_runs_and_passes_the_contract_suite(tmp_path, monkeypatch):
    from pmdkit.testing import check_objective

    (code,) = re.findall(r'```python title="my_loss.py"\n(.*?)```', README, re.DOTALL)
    (tmp_path / "my_loss.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    objective = import_module("my_loss").MyLoss()
    check_objective(objective)
    assert train(objective, backend="toy", env="modular-sum", steps=60).summary["pass_rate_last"] > 0.5


@pytest.mark.parametrize("page", address.PAGES)
def test_badges_links_and_ways_to_install_follow_from_one_address(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert text == address.with_address(text, address.repository()), "run python docs/generate/address.py"
    there = "https://github.com/someone/pmdkit"
    full = address.with_address(text, there)
    assert there in full or "https://someone.github.io/pmdkit/" in full
    for name in re.findall(rf"{there}/actions/workflows/([\w.]+)", full):
        assert (ROOT / ".github" / "workflows" / name).is_file()
    assert {path.name for path in (ROOT / FOLDER).glob("*")} == cloud_files(ROOT).keys()


def test_the_readme_says_what_the_site_says_has_run_on_a_gpu():
    assert on_a_gpu(ROOT / "benchmarks" / "results", "docs/") in README


def test_the_page_of_three_objectives_says_what_its_runs_say():
    """Every number of its prose, from the steps of the runs."""
    record = json.loads((ROOT / "benchmarks/results/smollm2-objectives.json").read_text(encoding="utf-8"))

    def of(column, half="matched"):
        found = {}
        for name, row in record["halves"][half]["objectives"].items():
            cell = [name, row["lr"], row["tau"]]
            runs = [
                r
                for r in record["runs"]
                if [r["objective"], r["lr"], r["tau"]] == cell and r["seed"] in record["seeds"]
            ]
            steps = record["halves"][half]["steps"]
            found[name] = np.array([r[column][:steps] for r in sorted(runs, key=lambda r: r["seed"])], float)
        return found

    rate, cut, anchor = of("pass_rate"), of("cut_off"), of("anchor")["pmd-part"]
    assert {each.shape for each in rate.values()} == {(5, 30)}

    def gap(first, second):  # with an error of 5 % shared by six comparisons
        found = (rate[first] - rate[second]).mean(1)
        return found.mean(), *stats.t.interval(1 - 0.05 / 6, 4, found.mean(), stats.sem(found))

    mean, low, high = gap("pmd-mean", "pmd-part")
    ahead, least, most = gap("grpo", "pmd-mean")
    widths = [high - low for low, high in (ends[1:] for ends in (gap("pmd-mean", "pmd-part"), gap("grpo", "pmd-part")))]
    share = {name: cut[name][:, 5:10].mean() / 64 for name in cut}
    last = rate["grpo"][:, -5:].mean() - rate["pmd-mean"][:, -5:].mean()
    text = " ".join((ROOT / "docs/use/smollm2.md").read_text(encoding="utf-8").split())
    for sentence in (
        f"by {mean:.3f} [{low:.3f}, {high:.3f}]: barely above 0",
        "by {:.3f} [{:.3f}, {:.3f}], with each of the five seeds".format(*gap("grpo", "pmd-part")),
        f"it is {anchor[:, :5].mean():.1f} in the first five steps",
        f"{share['pmd-part']:.0%} of its responses are cut off".replace("%", " %"),
        f"against {share['pmd-mean']:.0%} with PMD-mean".replace("%", " %"),
        f"last ten steps it is {cut['pmd-part'][:, -10:].mean() / 64:.0%}".replace("%", " %"),
        f"GRPO is ahead by {ahead:.3f}, and the interval goes from {most:.3f} ahead to {-least:.3f} behind",
        f"Over the last five steps GRPO is ahead by {last:.2f}",
        f"an interval is {min(widths):.2f} to {max(widths):.2f} wide",
    ):
        assert sentence in text, sentence

    assert bool(((rate["grpo"] - rate["pmd-part"]).mean(1) > 0).all())

    # the half in which a grid has chosen
    halves, grid = record["halves"], record["grid"]
    chosen = {name: (row["lr"], row["tau"]) for name, row in halves["tuned"]["objectives"].items()}
    for name, (lr, tau) in chosen.items():
        mine = {key: rates for key, rates in grid.items() if key.startswith(name)}
        assert max(mine, key=lambda key: mine[key][-1] * (len(mine[key]) == 2)) == f"{name}/{lr}/{tau}"
    changed = [name for name, row in halves["matched"]["objectives"].items() if (row["lr"], row["tau"]) != chosen[name]]
    assert changed == ["pmd-mean"]
    assert {row["verdict"] for row in halves["tuned"]["comparisons"]} == {"undecided"}
    best, usual = grid["pmd-mean/3e-5/0.05"][1], grid["pmd-mean/1e-5/0.05"][1]

    def less(some, others):  # and its 95 % interval
        found = others.mean(1) - some.mean(1)
        low, high = stats.t.interval(0.95, 4, found.mean(), stats.sem(found))
        return f"{found.mean():.3f} [{low:.3f}, {high:.3f}]"

    new, checked = of("pass_rate", "tuned, long")["pmd-mean"], sorted(record["check"], key=lambda run: run["seed"])
    again, before = np.array([run["pass_rate"] for run in checked]), rate["grpo"][:, :15]
    assert [run["seed"] for run in checked] == record["seeds"]
    ends = [halves[half]["objectives"]["pmd-mean"]["end"] for half in ("tuned, long", "matched")]
    pairs = {(row["of"], row["than"]): row["difference"] for row in halves["tuned, long"]["comparisons"]}
    mean, low, high = pairs["pmd-mean", "grpo"]
    for sentence in (
        f"GRPO has {-mean:.3f} [{-high:.3f}, {-low:.3f}] more than PMD-mean",
        f"ends at {ends[0]:.2f} where the recipe's ends at {ends[1]:.2f}",
        f"three times its learning rate for PMD-mean, by {best:.3f} to {usual:.3f}",
        f"{less(new[:, :15], rate['pmd-mean'][:, :15])} over 15 steps, {less(new, rate['pmd-mean'])} over 30",
        f"have {again.mean():.2f} on average, against {before.mean():.2f}: a difference of {less(again, before)}",
    ):
        assert sentence in text, sentence


def test_the_page_says_what_runs_with_stale_updates_say():
    """text:stability:language_model: numbers of the page and of the ledger's note, from the steps of the runs."""
    record = json.loads((ROOT / "benchmarks/results/smollm2-stale.json").read_text(encoding="utf-8"))
    rates = np.array([run["pass_rate"] for run in record["runs"]]).reshape(
        len(record["arms"]), len(record["seeds"]), -1
    )
    final = dict(zip(record["arms"], rates[:, :, -5:].mean(2), strict=True))
    means = dict(zip(record["arms"], np.lib.stride_tricks.sliding_window_view(rates, 3, 2).mean(3), strict=True))
    falls = {name: rate.max(1) - rate[:, -1] for name, rate in means.items()}
    found = {(row["of"], row["than"]): row for row in record["comparisons"]}
    for (one, other), row in found.items():
        for of, key in ((final, "final"), (falls, "fall")):
            assert row[key]["difference"][0] == pytest.approx((of[one] - of[other]).mean(), abs=1e-4)
    part, half, grpo = "pmd-part", "pmd-part at 0.5", "grpo"
    ahead = {other: final["pmd-mean"] - final[other] for other in (part, half, grpo)}
    shown = {
        other: "{:.2f} [{:.2f}, {:.2f}]".format(*found["pmd-mean", other]["final"]["difference"]) for other in ahead
    }
    widest = max(high - low for row in found.values() for _, low, high in (row["final"]["difference"],))
    text = " ".join((ROOT / "docs/use/smollm2.md").read_text(encoding="utf-8").split())
    first = ahead[half][:3]
    margin = stats.t.ppf(1 - 0.05 / 16, 2) * first.std(ddof=1) / np.sqrt(3)
    for sentence in (
        f"The largest fall is {falls[part].max():.2f}, on one seed of PMD-part at tau 0.05",
        f"PMD-mean's largest is {falls['pmd-mean'].max():.2f}",
        f"than PMD-part on {(ahead[part] > 0).sum()} of 5 seeds, by {shown[part]}",
        f"than PMD-part at tau 0.5 on {(ahead[half] > 0).sum()}, by {shown[half]}",
        f"than GRPO on {(ahead[grpo] > 0).sum()}, by {shown[grpo]}",
        f"an interval is up to {widest:.1f} wide",
        f"at tau 0.5 by {first.mean():.2f} [{first.mean() - margin:.2f}, {first.mean() + margin:.2f}]",
    ):
        assert sentence in text, sentence
    assert max(map(np.max, falls.values())) == falls[part].max()
    assert all(arm["fell"] == 0 for arm in record["arms"].values())
    assert {row["verdict"] for row in record["comparisons"]} == {"undecided"}
    assert bool((rates[:, :, -5:].mean(2) > rates[:, :, :5].mean(2)).all())
    note = next(claim["note"] for claim in claims() if claim["id"] == "text:stability:language_model")
    assert all(numbers in note for numbers in shown.values())


def test_what_the_pages_say_of_gsm8k_is_in_its_record():
    found = json.loads((ROOT / "benchmarks/results/smollm2-gsm8k.json").read_text(encoding="utf-8"))
    before, training, steps = found["before"], found["training"], found["steps"]
    assert (max(training["pass_rate"]), "after" in found) == (0, False)  # what both pages say

    def share(name):
        return "{value:.3f} [{low:.3f}, {high:.3f}]".format(**before[name])

    said = (
        f"{before['right']} of {before['responses']} responses",
        f"avg@{found['k']} is {share('avg_at_k')} and pass@{found['k']} {share('pass_at_k')}",
        f"{before['cut_off']} were cut off at {found['width']} tokens and {before['unanswered']} gave no answer",
    )
    said += (
        f"n {steps} steps of 32 responses",
        f"{found['minutes']:.0f} minutes on",
        "no response was right",
        f"all {sum(training['skipped_updates'])} updates were skipped",
    )
    for page in ("docs/use/llm.md", "benchmarks/README.md"):
        text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
        assert [sentence for sentence in said if sentence not in text] == []
    assert f"stated, would have passed {before['last_number_right']}." in text


def test_the_changelog_and_the_citation_have_the_version():
    assert f"\n## [{address.version()}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\nversion: {address.version()}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_the_first_page_quotes_numbers_of_the_theory():
    text = " ".join((ROOT / "docs" / "index.md").read_text(encoding="utf-8").split())
    said = r"pass rate of ([\d.]+) and τ = ([\d.]+), one exact step closes (\d+) % of the gap instead of all of it"
    p, tau, percent = (float(number) for number in re.search(said, text).groups())
    assert round(100 * float(theory.binary(p, tau, "pmd-mean").eta)) == percent
    assert float(theory.binary(p, tau, "pmd-part").eta) > 0.999


def lesson(code):
    """A notebook of a title with what one needs, and one executed cell that draws."""
    picture = nbformat.v4.new_output("display_data", {"image/svg+xml": "<svg/>", "text/plain": "<Figure>"})
    cell = nbformat.v4.new_code_cell(code, outputs=[picture])
    words = nbformat.v4.new_markdown_cell("# 900: What?\n\n* You need: it.\n\nThis.")
    return nbformat.v4.new_notebook(cells=[words, cell])


def test_a_lesson_s_picture_has_words_and_comes_before_its_folded_code(tmp_path):
    write_page(lesson("# alt: A line\n#   that goes up.\nplot()"), tmp_path / "900_what.py", tmp_path)
    text = (tmp_path / "900.md").read_text()
    assert text.index("![A line that goes up.](900/1.svg)") < text.index("<details") < text.index("plot()")
    assert text.index("This.") < text.index("900/1.svg") < text.index("You need")
    with pytest.raises(SystemExit):
        write_page(lesson("plot()"), tmp_path / "901_what.py", tmp_path)


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        ('<a href="https://arxiv.org">x</a><img src="a.svg" alt="A line."><script src="b.js">', None),
        ('<script src="https://cdn.example/x.js"></script>', "https://cdn.example/x.js"),
        ('<link rel="stylesheet" href="//fonts.example/css">', "//fonts.example/css"),
        ('<img src="a.svg">', "a.svg"),
        (r'<div class="arithmatex">\[ x $$\n$$ y \]</div>', "two equations"),
        ('<code>--<span>8</span>&lt;-- "a.py"</code>', "a.py"),
        ("<style>a { background: url(https://fonts.example/b) }</style>", None),  # read in files of styles alone
    ],
)
def test_the_check_of_the_site_sees_what_a_browser_would_fetch(tmp_path, page, reason):
    (tmp_path / "index.html").write_text(page)
    (tmp_path / "a.css").write_text("a { background: url(fonts/b.woff2) }")
    found = problems(tmp_path)
    assert reason in found[0] if reason else found == []


@pytest.mark.slow
def test_the_page_of_the_paper_has_every_row_once_and_every_proof_its_code(tmp_path):
    """Sliders where the paper is contradicted or misprinted; every theorem, proposition and lemma beside its code."""
    assert write_claims(tmp_path / "index.md", claims()) == len(claims())
    rows = re.split(r"^\?\?\?\+? claim ", (tmp_path / ".claims.md").read_text(), flags=re.MULTILINE)[1:]
    assert len(rows) == len(claims())
    for claim in claims():
        (row,) = (row for row in rows if f"(`{claim['id']}`)\n" in row)
        assert row.startswith(f"verdict-{claim['verdict']} evidence-{claim['evidence']} kind-{claim['kind']} ")
        assert row.count("data-counterexample=") == (claim["verdict"] in ("disagrees", "misprint"))
    proofs = ROOT / "docs" / "paper" / "proofs.md"
    shown = set(INCLUDED.findall(proofs.read_text(encoding="utf-8")))
    (tmp_path / "proofs.md").write_text(proofs.read_text(encoding="utf-8"), encoding="utf-8")
    assert write_proofs(tmp_path / "proofs.md", claims()) == len(shown)
    code = (tmp_path / ".proofs.md").read_text(encoding="utf-8")
    for claim in claims():
        if name_of(claim) in shown:
            assert code.count(f"def {claim['test'].split('::')[-1]}(") == 1
    wanted = {item["id"] for item in items() if item["kind"] in ("theorem", "proposition", "lemma")}
    wanted -= {"lem:bernstein_excess_self_bounding"}  # a tool of a proof
    held = {claim["id"] for claim in claims() if name_of(claim) in shown}
    assert {name for name in wanted if not any(c == name or c.startswith(f"{name}:") for c in held)} == set()
    page = (ROOT / "docs" / "paper" / "index.md").read_text(encoding="utf-8")
    assert re.findall(r"\.claims\.md:(\w+)", page) == ["filter", "counts", *by_section(claims())]
    with pytest.raises(SystemExit):
        write_claims(tmp_path / "index.md", claims()[:3])


def test_the_paper_equation_stands_under_its_own_statement():
    displays = {row["id"]: row["tex"] for row in equations()}
    found = {
        claim["id"]: " ".join(paper_equations(told, claim, displays))
        for rows in by_section(claims()).values()
        for claim, told in rows
    }
    assert r"\chi^2" not in found["eq:pmd_kl_subproblem"]
    assert r"\exp\Big(\frac{\Delta_y}{\tau}-W\Big(\frac{\lambda}{\tau^2}" in found["thm:pmdmean_solution"]
    assert r"\frac{\lambda}{2\tau}\chi^2" in found["prop:mixed_subproblem"]
    assert found["fact:smaller_target_error"] == "", "a finding of our own is no equation of the paper"


def test_versions_are_listed_by_their_numbers_and_the_newest_release_comes_first(tmp_path):
    for name in ("main", "0.9", "0.10"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").write_text("")
    assert list_versions(tmp_path) == ["0.10", "0.9", "main"]
    assert finished('<span class="n">tau</span><span class="o">=</span>') == 'tau<span class="o">=</span>'


def test_the_menu_holds_at_most_50_pages_and_14_on_use():
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2].partition("\n# ")[0]
    pages = re.findall(r"[\w/-]+\.md$", menu, re.MULTILINE)
    assert 40 < len(pages) <= 50
    assert 10 < sum(page.startswith("use/") for page in pages) <= 14


def test_an_old_address_leads_to_the_new_one_unless_either_is_wrong(tmp_path):
    for name in ("use", "use/new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").write_text("")
    assert forward(tmp_path, "# old new\nuse/old/ use/new/#here\n") == 1
    assert 'href="../../use/new/#here"' in (tmp_path / "use" / "old" / "index.html").read_text()
    for wrong in ("use/new/ use/", "use/older/ use/nowhere/"):
        with pytest.raises(SystemExit):
            forward(tmp_path, wrong)


@pytest.mark.slow
def test_a_traced_step_has_the_calls_of_the_loop_in_order():
    names = [call["name"] for call in traced("bandit")]
    order = [names.index(name) for name in ("inline", "BanditLearner.rollout", "BanditTask.reward", "credit")]
    assert order == sorted(order)
    assert order[-1] < names.index("BanditLearner.update")


def test_a_slide_has_one_title_and_forty_words_and_theorem_1_stands_alone():
    decks = {
        path.stem: split(path.read_text(encoding="utf-8")) for path in (ROOT / "docs" / "teach" / "decks").glob("*.md")
    }
    assert len(decks) == len(weeks()) + 1
    for name, slides in decks.items():
        assert len(slides) <= 30, name
        for text, notes in slides:
            assert notes, text
            assert set(re.findall(r"\b[1-4]\d\d\.\d\b", text + notes)) <= {*ids()}, text
            shown = re.sub(r"!\[.*?\]\(.*?\)|\$\$?.*?\$\$?|\]\(.*?\)", " ", text, flags=re.DOTALL)
            assert len(re.findall(r"^#+ ", text, re.MULTILINE)) == 1, text
            assert len(re.findall(r"\w+", shown)) <= 40, text
    for name in ("90-minutes", "week-2"):
        (theorem,) = (text for text, _ in decks[name] if "# Theorem 1\n" in text)
        assert theorem.count("W\\big(x") == 1


def test_the_autopsy_page_shows_what_was_said_of_the_dead_grader():
    kept = (ROOT / "benchmarks" / "results" / "dying-grader.json").read_text(encoding="utf-8")
    (cause,) = json.loads(kept)["causes"]
    page = " ".join((ROOT / "docs" / "use" / "autopsy.md").read_text(encoding="utf-8").split())
    for words in ("{name}: {says}", "confirm: {confirm}; try: {remedy}"):
        assert words.format(**cause) in page
