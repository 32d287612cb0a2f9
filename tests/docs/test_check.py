"""The check of the built site sees what a browser would fetch, and leaves what a reader may click."""

import pytest
from check import problems


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
