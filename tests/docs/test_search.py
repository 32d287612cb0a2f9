"""What docs/finish.py does to the index of the search and to the head of a page."""

from generate.explore_figures import FOLDER
from generate.previews import OTHERS, SECTIONS, with_preview
from generate.search import other_spellings, sections

PAGE = """<title>104: a question - pmdkit</title><meta name="description" content="the whole site">
<article><p>Short.</p><p>How strong is the <b>term</b> \\(\\frac{\\lambda}{2\\tau}\\chi^2\\), and "for"
whom?</p>@</article>"""


def test_either_spelling_gives_the_other_and_a_greek_letter_its_name():
    assert other_spellings("The regulariser's behaviour, centred") == "behavior centered regularizer"
    assert other_spellings("optimizer normalization labeled") == "labelled normalisation optimiser"
    assert other_spellings("τ and χ² of λ") == "chi2 lambda tau"
    assert other_spellings("size, noise, is, centered") == "centred"


def test_a_long_section_keeps_its_words_and_the_api_its_first_sentence():
    long = f"<p>One sentence.</p> <pre><code>secret</code></pre> <p>{'far away. ' * 50}</p> <p>The normaliser.</p>"
    places = ("use/x/", "api/x/#f", "")
    used, api, home = sections([{"location": place, "title": "t", "text": long} for place in places])
    assert home["location"] == ""
    assert used["text"].startswith("<p>One sentence.</p> <p>far away.")
    assert "normaliser" not in used["text"]
    assert "normalizer" in used["text_also"]
    assert "secret" not in str(used)
    assert api["text"] == "<p>One sentence."
    assert api["boost"] < used["boost"]


def test_a_shared_link_has_a_description_and_once_the_address_is_known_a_picture():
    page = with_preview(
        PAGE.replace("@", '<img src="../../../explore/anchor/static.svg">'), "learn/lessons/104/", "https://a.b/"
    )
    assert '<meta property="og:title" content="104: a question">' in page
    text = "How strong is the term lambda/(2 tau) chi2, and &quot;for&quot; whom?"
    assert page.count(f'description" content="{text}">') == 2
    assert '<meta property="og:image" content="https://a.b/explore/anchor/preview.png">' in page
    assert '<link rel="canonical" href="https://a.b/learn/lessons/104/">' in page
    assert "the whole site" not in page
    assert "explore/simplex/preview.png" in with_preview(PAGE.replace("@", ""), "learn/", "https://a.b/")
    assert {OTHERS, *SECTIONS.values()} <= {path.stem for path in FOLDER.glob("*.py")}
    assert "og:image" not in with_preview(PAGE.replace("@", ""), "learn/", "")
