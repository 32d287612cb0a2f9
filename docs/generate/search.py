"""The search index of a built site: lessons and symbols first, either spelling of a word, and less to load.

The theme builds the index from all text and all code, 1.6 MB of it, and ranks by the number of mentions, which the API
wins. Here code and displayed equations are left out, and what is far down in a long section is kept as words alone:
the page is found by them, but no result quotes them. lunr, which searches, weighs and keeps any field that the index
names; the theme shows `title` and `text` alone, so what stands in the others is found and not seen.
"""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

# the first that an address begins with; where a title has 10 times the weight of the text
BOOSTS = {
    "learn/symbols/": 30.0, "learn/lessons/": 6.0, "learn/": 3.0, "use/kl/": 0.3, "explore/": 0.3, "api/": 0.1,
    "contributing/": 0.2, "changelog/": 0.2, "design/": 0.2, "project/": 0.2, "": 1.0,
}  # fmt: skip
# what people type, in their words, and the page that answers it; tests/site/test_search.py asks forty such questions
ASKED = {
    "learn/lessons/103/": "lagrangian multiplier", "learn/lessons/106/": "pass rate",
    "learn/lessons/107/": "GRPO", "learn/lessons/202/": "learning rate lr",
    "learn/lessons/203/": "importance sampling clip",
    "learn/lessons/204/": "hacking", "learn/lessons/305/": "how many seeds", "learn/metrics/": "entropy",
    "use/autopsy/": "why is my loss negative starts at 0 reward does not rise collapse",
    "use/data/": "reward function grade dataset", "use/kl/": "penalty", "use/plan/": "out of memory OOM",
    "use/turns/": "tool multi-turn", "use/your-loss/": "own loss", "teach/": "slides",
}  # fmt: skip
FIELDS = {"title": 10, "text": 1, "tags": 10, "asked": 60, "title_also": 10, "text_also": 1, "words": 0.5}
# characters of a section that a result can quote, to the end of the sentence
QUOTED = {"learn/lessons/": 600, "learn/symbols/": 4000, "api/": 0, "": 100}
BRITISH = {
    "behaviour": "behavior", "colour": "color", "favour": "favor", "neighbour": "neighbor", "centred": "centered",
    "centring": "centering", "centre": "center", "labelled": "labeled", "labelling": "labeling", "modelled": "modeled",
    "modelling": "modeling", "cancelled": "canceled", "analyse": "analyze", "grey": "gray", "artefact": "artifact",
    "licence": "license", "judgement": "judgment",
}  # fmt: skip
ISE = re.compile(r"(?<=[a-z]{3}i)([sz])(?=(?:e[drs]?|ers|ing|ations?)$)")
CODE = re.compile(r"(?:Set-up code )?<pre>.*?</pre>|Source code in <code>.*?</code>|\\\[.*?\\\]", re.S)
INLINE = re.compile(r"\\\((.*?)\\\)", re.S)
SENTENCE = re.compile(r"\.(?=[\s<])|</p>|$")  # where one ends
FRACTION = re.compile(r"\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}")
COMMAND = re.compile(r"\\(?:htmlClass\{[^}]*\}|[dt]?frac|left|right|text|math\w+|operatorname|hat|bar|[,;!: ])|[{}_$&]")


def in_words(equation: re.Match[str]) -> str:
    r"""An equation within a line, as far as one would type it: `\tau \log Z` is "tau log Z", `\chi^2` is "chi2"."""
    text = FRACTION.sub(r"\1/(\2)", equation[1])
    return " ".join(COMMAND.sub(" ", text).replace("^", "").replace("\\", " ").split())


def other_spellings(text: str) -> str:
    """The words of a text as the other side of the Atlantic spells them, and its Greek letters by name.

    "regulariser" gives "regularizer" and the reverse; τ gives "tau" and χ² gives "chi2".
    """
    found = set()
    for word in set(re.findall(r"[a-z]+", text.lower())):
        found.add(ISE.sub(lambda letter: "z" if letter[1] == "s" else "s", word))
        for pair in BRITISH.items():
            here, there = pair if pair[0] in word else pair[::-1]
            if here in word:
                found.add(word.replace(here, there))
                break
        found.discard(word)
    for letter, square in re.findall("([α-ω])(²?)", text):
        found.add(unicodedata.name(letter).split()[3].lower().replace("lamda", "lambda") + square.replace("²", "2"))
    return " ".join(sorted(found))


def of(address: str, table: dict[str, float]) -> float:
    """The value of the first entry that an address begins with."""
    return next(value for start, value in table.items() if address.startswith(start))


def words(text: str) -> set[str]:
    """The words of a text with tags, of two letters and more, in small letters."""
    return set(re.findall(r"[^\W\d_]{2,}", re.sub("<[^>]*>", " ", text).lower()))


def sections(entries: Sequence[dict[str, str]]) -> Iterator[dict[str, str | float]]:
    """The entries of the theme's index as the site serves them; `words` leaves out those of every twelfth entry."""
    texts = [" ".join(INLINE.sub(in_words, CODE.sub(" ", entry["text"])).split()) for entry in entries]
    counts = Counter(word for text in texts for word in words(text))
    frequent = {word for word, count in counts.items() if count > len(entries) / 12}
    for entry, text in zip(entries, texts, strict=True):
        place = entry["location"]
        end = SENTENCE.search(text, int(of(place, QUOTED)))
        quoted = text[: end.end()] if end else text
        whole = quoted if place.startswith("api/") else text
        seen = {"location": place, "title": entry["title"], "text": quoted, "boost": of(place, BOOSTS)}
        found = {
            "words": " ".join(sorted(words(whole) - words(quoted) - frequent)),
            "title_also": other_spellings(entry["title"]),
            "text_also": other_spellings(whole),
            "asked": ASKED.get(place, ""),
        }
        yield seen | {name: value for name, value in found.items() if value}


def write_index(path: Path) -> int:
    """Write the index of a built site anew; returns its bytes."""
    index = json.loads(path.read_text(encoding="utf-8"))
    index["config"]["fields"] = {name: {"boost": boost} for name, boost in FIELDS.items()}
    index["docs"] = list(sections(index["docs"]))
    path.write_text(json.dumps(index, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")
    return path.stat().st_size
