"""The report: one file that loads nothing, every picture described, every anchor there, the ledger's own counts."""

import re
from collections import Counter
from html.parser import HTMLParser

import pytest

from pmdkit_lab.ledger import claims

VOID = {"meta", "img", "br", "mspace", "link", "input"}


class Page(HTMLParser):
    """What a browser would see and load."""

    def __init__(self, text):
        super().__init__()
        self.loads, self.links, self.ids, self.images, self.open = [], [], [], [], []
        self.feed(text)
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        assert tag not in ("script", "link", "iframe", "object", "embed", "base"), tag
        assert not any(name.startswith("on") for name in found), found
        self.loads += [found[name] for name in ("src", "srcset", "data", "poster", "action") if name in found]
        if tag == "a":
            self.links.append(found["href"])
        if tag == "img":
            self.images.append(found)
        if "id" in found:
            self.ids.append(found["id"])
        if tag not in VOID and not self.get_starttag_text().endswith("/>"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag


@pytest.fixture
def report(tiny, go, tmp_path):
    parts, _ = tiny
    summary = go(parts, tmp_path / "out")
    return (tmp_path / "out" / "report.html").read_text(), summary


@pytest.mark.slow
def test_it_loads_nothing_and_every_picture_is_described(report):
    text, _ = report
    page = Page(text)
    assert page.loads
    assert all(address.startswith("data:image/") for address in page.loads)
    assert all(len(image["alt"]) > 10 for image in page.images)
    assert all(address.startswith("#") for address in page.links)
    assert {address[1:] for address in page.links} <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    style = re.search(r"<style>(.*?)</style>", text, re.S).group(1)
    assert "url(" not in style
    assert "@import" not in style


@pytest.mark.slow
def test_the_ledger_in_it_is_the_ledger(report):
    text, summary = report
    assert summary["ledger"] == Counter(row["verdict"] for row in claims())
    card = {verdict: int(number) for number, verdict in re.findall(r"</span> (\d+) ([a-z-]+)<br>", text)}
    assert card == summary["ledger"]
    shown = re.findall(r'<p class="where">\w+ <code>([^<]+)</code>', text)
    assert sorted(shown) == sorted(row["id"] for row in claims())
