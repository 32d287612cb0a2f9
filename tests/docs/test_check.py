"""The check of the built site sees what a browser would fetch, and leaves what a reader may click."""

import pytest
from check import problems
from prose import HABITS, found_in, linted, main


@pytest.fixture
def site(tmp_path):
    (tmp_path / "index.html").write_text(
        '<a href="https://arxiv.org">x</a><img src="a.svg" alt="A line."><script src="b.js">'
    )
    (tmp_path / "a.css").write_text("a { background: url(fonts/b.woff2) }")
    return tmp_path


def test_a_site_of_its_own_files_passes(site):
    assert problems(site) == []


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        ('<script src="https://cdn.example/x.js"></script>', "fetches https://cdn.example/x.js"),
        ('<link rel="stylesheet" href="//fonts.example/css">', "fetches //fonts.example/css"),
        ('<img alt="A line." src="http://example.org/a.png">', "fetches http://example.org/a.png"),
        ('<img src="a.svg">', "picture a.svg has no alternative text"),
        (r'<div class="arithmatex">\[ x $$\n$$ y \]</div>', r"two equations in one: \[ x $$\n$$ y \]"),
        ('<code>--<span>8</span>&lt;-- "a.py"</code>', 'a file is not shown: --8&lt;-- "a.py"'),
        ('<code>--8 &lt; --"a.py"</code>', 'a file is not shown: --8 &lt; --"a.py"'),
    ],
)
def test_what_is_fetched_from_elsewhere_or_has_no_words_is_named(site, page, reason):
    (site / "more.html").write_text(page)
    (found,) = problems(site)
    assert found.startswith("more.html: ")
    assert found.endswith(reason)


@pytest.mark.parametrize("rule", ["@import 'https://fonts.example/css';", "a { src: url(https://fonts.example/css) }"])
def test_styles_are_read_too(site, rule):
    (site / "a.css").write_text(rule)
    assert problems(site) == ["a.css: fetches https://fonts.example/css"]


def test_notes_are_read_and_code_is_not():
    """The text of a note is indented like code, but it is read."""
    note = '!!! note "Tried"\n    Nothing of it ran.\n\n    Nothing of it ran.\n\nText.\n\n    Nothing of it.\n'
    assert [line for line, _, _ in found_in(note)] == [2, 4]


@pytest.mark.parametrize("habit", HABITS, ids=lambda habit: habit.sample)
def test_a_habit_is_found_in_its_sample_and_across_a_line_end(habit):
    """The line that is named is the one where the phrase begins."""
    for sample in (habit.sample, habit.sample.replace(" ", "\n")):
        found = [(line, one) for line, _, one in found_in(f"A heading.\n\n{sample} and more.\n")]
        assert habit in [one for _, one in found]
        assert min(line for line, _ in found) >= 3


def test_proselint_reads_prose_and_no_code():
    (found,) = linted("A line.\n\nWe saw *them* on the spot, `on the spot`.\n")
    assert found[:2] == (3, "on the spot")


def test_plain_prose_and_code_have_no_habits():
    text = (
        "There is no lock, and it is no longer needed: `the own term`.\n\n```\nthey are no numbers, mended anew\n```\n"
    )
    assert list(found_in(text)) == []


def test_pages_lessons_and_exercises_are_read(tmp_path):
    for name, text in {
        "docs/use/page.md": "This begins anew.",
        "docs/learn/lessons/101.md": "Generated: this begins anew.",
        "tutorials/101_name.py": "# %% [markdown]\n# This begins\n# anew.\n\n# %%\nanew = 1  # anew\n",
        "packages/pmdkit-course/pmdkit_course/exercises/lesson_101.py": 'HINTS = ("Begin " "anew.",)\n',
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = main(tmp_path)
    assert [line.partition(":")[0] for line in found] == [
        "docs/use/page.md", "tutorials/101_name.py", "packages/pmdkit-course/pmdkit_course/exercises/lesson_101.py",
    ]  # fmt: skip
    assert found[1].endswith("(line 3)")
