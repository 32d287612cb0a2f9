"""The search as a student uses it, and what a first visit loads."""

from urllib.parse import urlsplit

import pytest

from tests.nightly import mostly_nightly

FIRST = {
    "regularizer": "learn/lessons/104/", "regulariser": "learn/lessons/104/", "normalizer": "learn/lessons/",
    "tau": "learn/symbols/", "lambda": "learn/symbols/", "advantage": "learn/symbols/", "Lambert": "learn/symbols/",
    "log ratio": "learn/symbols/", "simplex": "learn/lessons/101/", "KL": "learn/",
    "chi2": "learn/lessons/104/", "staleness": "learn/lessons/203/", "verifier": "learn/",
    "pass rate": "learn/lessons/106/", "collapse": "use/autopsy/", "load_problems": "api/llm/",
    "GRPO": "learn/lessons/107/", "RLOO": "learn/lessons/107/", "learning rate": "learn/lessons/202/",
    "how many seeds": "learn/lessons/305/", "why is my loss negative": "use/autopsy/", "loss starts at 0": "use/autopsy/",
    "reward does not rise": "use/autopsy/", "importance sampling": "learn/lessons/203/",
    "stale": "learn/lessons/203/", "clip": "learn/lessons/203/", "reward hacking": "learn/lessons/204/",
    "lagrangian": "learn/lessons/103/", "policy gradient": "learn/lessons/100/", "mirror descent": "learn/lessons/100/",
    "baseline": "learn/", "entropy": "learn/metrics/", "partition function": "learn/symbols/",
    "temperature": "learn/symbols/", "group size": "learn/symbols/", "ministeps": "learn/symbols/",
    "pass@k": "learn/lessons/303/", "GPU": "learn/lessons/302/", "out of memory": "use/plan/",
    "vLLM": "use/engines/", "TRL": "use/trainers/", "verl": "use/trainers/", "resume": "use/checkpoints/",
    "own loss": "use/your-loss/", "dataset": "use/data/", "tool": "use/turns/",
    "KL penalty": "use/kl/", "top_p": "use/sampler/", "slides": "teach/", "Kimi": "use/kimi/",
}  # fmt: skip
HEAVY = ["", "learn/lessons/101/", "learn/lessons/106/", "paper/", "explore/biography/", "api/theory/"]


def results(page, query):
    """The pages that a search finds, first to last, without the site's own address."""
    for text, state in (("", "detached"), (query, "attached")):
        page.fill("input[name=query]", text)
        page.press("input[name=query]", "End")  # the theme asks at a key
        page.locator(".md-search-result__item").first.wait_for(state=state)
    links = page.locator(".md-search-result__item > a").evaluate_all("all => all.map(one => one.href)")
    return [urlsplit(link).path.lstrip("/") for link in links]


@pytest.mark.site
def test_a_search_finds_what_teaches_first(look):
    """Lessons and symbols stand before the API, whose names are found; either spelling finds either."""
    page = look("learn/")
    page.focus("input[name=query]")
    wrong = {
        query: found[:2] for query, want in FIRST.items() if not (found := results(page, query))[0].startswith(want)
    }
    assert wrong == {}
    found = results(page, "lambda")
    api = next(i for i, path in enumerate(found) if path.startswith("api/"))
    assert not any(path.startswith(("learn/lessons/", "learn/symbols/")) for path in found[api:])


@pytest.mark.site
def test_the_index_of_the_search_is_small_and_comes_when_it_is_needed(site, look):
    assert (site / "search/search_index.json").stat().st_size < 500_000
    asked = []
    page = look("learn/")
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(300)
    assert not any("search_index" in url for url in asked)
    with page.expect_response("**/search_index.json"):
        page.focus("input[name=query]")


@pytest.mark.site
@pytest.mark.parametrize("path", mostly_nightly(HEAVY, "learn/lessons/101/", "paper/"))
def test_a_first_visit_loads_less_than_a_megabyte(site, browser, address, path):
    """Before compression: everything that the browser asks for until fonts and network have been quiet for a second."""
    asked = set()
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.on("request", lambda request: asked.add(urlsplit(request.url).path.lstrip("/")))
    page = context.new_page()
    page.goto(address + path, wait_until="networkidle")
    before = -1
    while before < (before := len(asked)):
        page.evaluate("document.fonts.ready.then(() => true)")
        page.wait_for_timeout(1000)
    context.close()
    files = [site / name / "index.html" if (site / name).is_dir() else site / name for name in asked]
    sizes = {str(file.relative_to(site)): file.stat().st_size for file in files if file.is_file()}
    assert len(sizes) > 8
    assert sum(sizes.values()) < 1_000_000, sorted(sizes.items(), key=lambda one: -one[1])[:8]
