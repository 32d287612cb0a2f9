"""What a shared link shows: title, description and a picture, as Open Graph and Twitter's cards read them.

The pictures are those of the explorables (`write_preview` in explore_figures.py): a page that shows one of them has it,
another has that of its section. A card needs whole addresses, so there is no picture until `Repository` in
pyproject.toml says where the pages are.
"""

import html
import re

from generate.search import INLINE, in_words

SECTIONS = {"learn": "simplex", "explore": "simplex", "paper": "rollouts", "use": "losses", "api": "losses"}
OTHERS = "biography"
SHOWN = re.compile(r'src="[^"]*?(\w+)/static\.svg"')
DESCRIPTION = re.compile(r'<meta name="description" content="[^"]*">')
PARAGRAPH = re.compile(r"<p>((?:(?!</p>|<img).)*)</p>", re.S)
LONGEST = 200  # characters of a description


def description(page: str) -> str:
    """The first sentences of a page's text, at most LONGEST characters; "" if it has none."""
    for paragraph in PARAGRAPH.findall(page.partition("<article")[2]):
        text = " ".join(INLINE.sub(in_words, html.unescape(re.sub(r"<[^>]*>", "", paragraph))).split())
        if len(text) > 40:
            return text if len(text) <= LONGEST else text[:LONGEST].rpartition(" ")[0] + " …"
    return ""


def with_preview(page: str, place: str, address: str) -> str:
    """A page with the tags of its card.

    Args:
        page: its HTML.
        place: its folder within the site, such as `learn/lessons/104/`.
        address: of the site, with a slash at its end; "" if it is not known.
    """
    title = re.findall(r"<title>(.*?)(?: - pmdkit)?</title>", page, re.S)
    if not title or not DESCRIPTION.search(page):
        return page  # the slides, which have a head of their own
    text = html.escape(description(page)) or DESCRIPTION.findall(page)[0].split('"')[3]
    own = SHOWN.findall(page) or [SECTIONS.get(place.split("/")[0], OTHERS)]
    tags = {"type": "article", "site_name": "pmdkit", "title": title[0], "description": text}
    if address:
        tags |= {"url": address + place, "image": f"{address}explore/{own[0]}/preview.png"}
    lines = [f'<meta name="description" content="{text}">']
    lines += [f'<meta property="og:{name}" content="{value}">' for name, value in tags.items()]
    lines.append(f'<meta name="twitter:card" content="summary{"_large_image" if address else ""}">')
    if address:
        lines.append(f'<link rel="canonical" href="{address}{place}">')
    return DESCRIPTION.sub(lambda _: "\n".join(lines), page, count=1)
