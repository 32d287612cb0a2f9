"""Finish a built site: less to load, a search for learners, previews of links, old addresses, the list of versions.

Run `python docs/finish.py site` after the build; it does not depend on what built the site. `--versions PAGES` takes a
folder with one site in each subfolder, `main` and `0.1` and so on, writes the `versions.json` that the theme's menu
reads, and an index.html that leads to the newest release, or to `main` before the first.
"""

import json
import posixpath
import re
import sys
from pathlib import Path

from generate import address, previews, search

MOVED = Path(__file__).parent / "generate" / "moved.txt"
PLAIN = re.compile(r'<span class="(?:n|w)">([^<]*)</span>')
SEARCH = '<div class="md-search" data-md-component="search" role="dialog"'
CONFIG = '<script id="__config"'
WAIT = (Path(__file__).parent / "javascripts" / "search.js").read_text(encoding="utf-8")
KATEX = re.compile(r'<link rel="stylesheet" href="[^"]*katex\.min\.css">|<script src="[^"]*katex\.min\.js"></script>')
TYPESET = ('class="arithmatex"', "data-tex=")  # where KaTeX has something to do
UNSEEN = re.compile(r'<!--.*?-->|(?<=>)\s*\n\s*(?=<)| id="(?:text|line2d|patch|[xy]tick|axes|legend)_\d+"', re.S)
DIGITS = re.compile(r'(?<=[ "])(?:d|x|y)="[^"]*"|translate\([^)]*\)')  # coordinates of a picture, in points
ACTIVE = "md-tabs__item--active"
TABS = re.compile(r'<nav class="md-tabs".*?</nav>', re.S)
MENU = re.compile(r'<nav class="md-nav md-nav--primary.*?</nav>(?=\s*</div>\s*</div>\s*</div>)', re.S)
SECONDARY = re.compile(r'<nav class="md-nav md-nav--secondary".*?</nav>', re.S)  # the headings of the section's page
EMPTY = re.compile(r'(<ul class="md-nav__list" data-md-scrollfix>)\s*(</ul>)')  # a section with one page in the menu
HEADING = re.compile(r'<h1 id="[^>]*>([^:<]*)')  # up to its question
ITEM = '<li class="md-nav__item"><a href="{}/" class="md-nav__link">{}</a></li>'
LINK = re.compile(r'href="(?![#/]|[a-z]+:)([^"#]*)"')
LEAD = """<!doctype html><meta charset="utf-8"><title>pmdkit</title>
<meta http-equiv="refresh" content="0; url={0}/"><a href="{0}/">{0}</a>
"""
FORWARD = """<!doctype html><html lang="en"><meta charset="utf-8"><title>This page has moved</title>
<script>location.replace("{0}" + (location.hash || "{1}"))</script>
<meta http-equiv="refresh" content="0; url={0}{1}"><p>This page has moved: <a href="{0}{1}">{0}{1}</a></p></html>
"""


def finished(page: str) -> str:
    """A page without the markup of plain names and blanks in code, and with a label on the search.

    That markup gives no colour and is a third of the weight of a lesson; a page without code needs no indentation. The
    theme's search is a dialogue without a name, which a screen reader cannot announce; its index waits until somebody
    searches. A page without equations needs no KaTeX.
    """
    if "<pre" not in page:
        page = re.sub(r"\n\s+", "\n", page)
    page = PLAIN.sub(r"\1", page).replace(SEARCH + ">", SEARCH + ' aria-label="Search">')
    if CONFIG not in page:  # the slides: not the theme's
        return page
    page = later_pictures(page.replace(CONFIG, f"<script>{WAIT}</script>{CONFIG}", 1))
    return page if any(mark in page for mark in TYPESET) else KATEX.sub("", page)


def later_pictures(page: str) -> str:
    """A page that loads its first picture at once, others when they come near, and stills of explorables if shown."""
    parts = page.split("<img ")
    later = ["", "", *['loading="lazy" '] * len(parts)]
    for i, before in enumerate(parts, start=1):
        if "explore-static" in before[-400:]:
            later[i] = 'loading="lazy" '
    return parts[0] + "".join(f"<img {later[i]}{part}" for i, part in enumerate(parts[1:], start=1))


def in_its_section(page: str, place: str, site: Path) -> str:
    """A page off the menu with the tabs and the side menu of its section, which the theme leaves empty there."""
    if ACTIVE in page or CONFIG not in page or place == "404.html":
        return page
    first = place.split("/")[0] + "/"
    section = first if (site / first / "index.html").is_file() and first != place else "design/"
    whole = (site / section / "index.html").read_text(encoding="utf-8")
    if EMPTY.search(whole):
        others = ((each.parent.name, each.read_text("utf-8")) for each in sorted((site / section).glob("*/index.html")))
        items = (ITEM.format(name, HEADING.findall(text)[0]) for name, text in others if HEADING.search(text))
        whole = EMPTY.sub(rf"\1{''.join(items)}\2", whole)
    for part in (TABS, MENU):
        (old,), (new,) = part.findall(page), part.findall(whole)
        new = LINK.sub(lambda link: f'href="{posixpath.relpath(section + link[1], place)}/"', SECONDARY.sub("", new))
        page = page.replace(old, new.replace(" md-nav__link--active", ""))
    return page


def forward(site: Path, moved: str) -> int:
    """Write a page at each old address that leads to the new one, and keeps the place in it; returns their number.

    A line of `moved` has an old and a new address. SystemExit if a page has the old one, or none has the new one.
    """
    pairs = [line.split() for line in moved.splitlines() if line and not line.startswith("#")]
    for old, new in pairs:
        page, _, place = new.partition("#")
        if (site / old / "index.html").exists() or not (site / page / "index.html").exists():
            raise SystemExit(
                f"{old} leads to {new}; expected no page there and one here: fix {MOVED.name}, or delete the page that "
                "an older build left in docs/"
            )
        (site / old).mkdir(parents=True, exist_ok=True)
        text = FORWARD.format("../" * len(Path(old).parts) + page, place and f"#{place}")
        (site / old / "index.html").write_text(text, encoding="utf-8")
    return len(pairs)


def list_versions(pages: Path) -> list[str]:
    """The versions in a folder, newest first and `main` last; also written for the theme's menu and the first page."""
    found = [path.parent.name for path in pages.glob("*/index.html")]
    releases = sorted(
        (name for name in found if name != "main"), key=lambda name: [int(n) for n in name.split(".")], reverse=True
    )
    names = releases + [name for name in found if name == "main"]
    if not names:
        raise SystemExit(f"{pages} holds no site; expected folders such as main and 0.1, each with an index.html")
    rows = [{"version": name, "title": name, "aliases": ["latest"] if name == names[0] else []} for name in names]
    (pages / "versions.json").write_text(json.dumps(rows), encoding="utf-8")
    (pages / "index.html").write_text(LEAD.format(names[0]), encoding="utf-8")
    return names


if __name__ == "__main__":
    if sys.argv[1] == "--versions":
        print("versions:", *list_versions(Path(sys.argv[2])))
    else:
        site = Path(sys.argv[1])
        pages = address.site(address.repository())  # main's pictures and pages stay where they are, a release's do not
        for path in list(site.rglob("*.html")):
            place = path.relative_to(site).as_posix().removesuffix("index.html")
            page = in_its_section(path.read_text(encoding="utf-8"), place, site)
            page = finished(page)
            path.write_text(previews.with_preview(page, place, pages and f"{pages}main/"), encoding="utf-8")
        for path in site.rglob("*.svg"):  # a hundredth of a point is less than any screen shows
            picture = UNSEEN.sub("", path.read_text(encoding="utf-8"))
            shorter = DIGITS.sub(lambda found: re.sub(r"(\.\d\d)\d+", r"\1", found[0]), picture)
            path.write_text(shorter, encoding="utf-8")
        search.write_index(site / "search" / "search_index.json")
        print(f"{forward(site, MOVED.read_text(encoding='utf-8'))} old addresses lead on")
