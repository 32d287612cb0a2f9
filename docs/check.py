"""Check a built site: it must fetch nothing from elsewhere, and every picture needs alternative text.

An equation that runs into the next one is rejected too: KaTeX stops there, and the rest of the page stays in TeX. So is
the name of a file whose content should have been included.

Run it after `mkdocs build`: `python docs/check.py site`. Links that a reader may click can lead anywhere.
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path

FETCHED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "video": "src"}
ELSEWHERE = re.compile(r"(https?:)?//")
JOINED = re.compile(r'class="arithmatex">([^<$]*\$[^<]*)<')
TAG = re.compile(r"<[^>]*>")  # highlighting puts tags between characters
NOT_SHOWN = re.compile(r"-+\s*8\s*(?:&lt;|<)\s*--.*")
IN_STYLE = re.compile(r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')\s]+)")


class Page(HTMLParser):
    """Collects what is wrong with one page."""

    def __init__(self) -> None:
        super().__init__()
        self.problems: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Called for every tag of the page."""
        values = dict(attrs)
        address = values.get(FETCHED.get(tag, ""), "") or ""
        if ELSEWHERE.match(address):
            self.problems.append(f"<{tag}> fetches {address}")
        if tag == "img" and not values.get("alt"):
            self.problems.append(f"picture {address} has no alternative text")


def problems(site: Path) -> list[str]:
    """All problems of a built site, one line each."""
    found = []
    for path in sorted(site.rglob("*.html")):
        page = Page()
        text = path.read_text(encoding="utf-8")
        page.feed(text)
        joined = [f"two equations in one: {text[:60]}" for text in JOINED.findall(text)]
        absent = [f"a file is not shown: {line[:60]}" for line in NOT_SHOWN.findall(TAG.sub("", text))]
        found += [f"{path.relative_to(site)}: {problem}" for problem in page.problems + joined + absent]
    for path in sorted(site.rglob("*.css")):
        styles = path.read_text(encoding="utf-8")
        found += [f"{path.relative_to(site)}: fetches {address}" for address in IN_STYLE.findall(styles)]
    return found


if __name__ == "__main__":
    if not Path(sys.argv[1], "index.html").is_file():
        sys.exit(f"{sys.argv[1]} holds no index.html; expected a built site, run mkdocs build first")
    sys.exit("\n".join(problems(Path(sys.argv[1]))) or 0)
