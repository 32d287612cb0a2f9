"""The report: one self-contained HTML file made from the results of the parts, without scripts.

report.html is its template, report.css its style sheet. Times are in separate elements, so that two reports of the same
work differ only in these.
"""

import base64
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from pmdkit_lab.durations import clock
from pmdkit_lab.ledger import VERDICTS
from pmdkit_lab.reproduce.part import SCALES, Part, Result

HERE = Path(__file__).parent
SIGNS = ((r"\+-1\b", "±1"), (r"\^2\b", "²"), (r"(?<=\s)<=(?=\s)", "≤"), (r"(?<=\s)>=(?=\s)", "≥"))
PIXELS = 0.62  # CSS pixels per pixel of a picture with 200 pixels per inch
MIME = {".svg": "image/svg+xml", ".png": "image/png"}


def write_report(
    out: Path,
    config: Mapping[str, Any],
    summary: Mapping[str, Any],
    parts: Sequence[Part],
    results: Mapping[str, Result],
) -> bytes:
    """The report as bytes; made from the folder `out` alone."""
    from pmdkit_lab.reproduce.parts import CHAPTERS

    sections, names = arrange(parts, results), summary["parts"]
    pieces = [piece for result in results.values() for piece in result["pieces"]]
    checks = [piece for piece in pieces if piece["kind"] == "check"]
    claims = [row for piece in pieces if piece["kind"] == "claims" for row in piece["rows"]]
    chapters = [
        {"key": key, "title": title, "sections": [each for each in sections if each["part"].chapter == key]}
        for key, title in CHAPTERS.items()
    ]
    # everything is escaped, and an undefined name is an error
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"prose": prose, "seconds": seconds}
    page = environment.from_string((HERE / "report.html").read_text(encoding="utf-8"))
    text = page.render(
        css=Markup((HERE / "report.css").read_text(encoding="utf-8")),
        budget=clock(config["budget_seconds"]),
        begun=config["begun"],
        summary=summary,
        env=summary["env"],
        chapters=[each for each in chapters if each["sections"]],
        checks=checks,
        ledger=[
            (verdict, VERDICTS[verdict], [r for r in claims if r["verdict"] == verdict])
            for verdict in reversed(VERDICTS)
        ],
        claims=claims,
        failed=[row for row in names if row["state"] == "failed"],
        missing=[row for row in names if row["state"] in ("left out", "late", "waiting")],
        ended=[row for row in names if row["state"] == "done"],
        scales=SCALES,
        image=lambda section, name: image(out / "parts" / section["part"].name / name),
        width=lambda section, name: width(out / "parts" / section["part"].name / name),
    )
    return text.encode()


def arrange(parts: Sequence[Part], results: Mapping[str, Result]) -> list[dict[str, Any]]:
    """Parts with the pieces to show: of pieces with the same name the last one, in the place of the first."""
    last: dict[str, tuple[Part, dict[str, Any]]] = {}
    for part in parts:
        for piece in results.get(part.name, {"pieces": []})["pieces"]:
            last[piece["name"]] = (part, piece)  # a dict keeps the position of the first insertion
    shown = [(part, piece) for part, piece in last.values() if piece["kind"] in ("picture", "sheet")]
    # the rows of the ledger are collected from all parts, so its section has no piece of its own
    gathered = [(part, None) for part, piece in last.values() if piece["kind"] == "claims"]
    return [{"part": part, "piece": piece} for part, piece in (*shown, *gathered)]


def image(path: Path) -> str:
    """The smaller of a picture's two files, as a data URL."""
    files = [path.with_name(path.name + kind) for kind in MIME]
    smallest = min(files, key=lambda file: file.stat().st_size)
    data = base64.b64encode(smallest.read_bytes()).decode()
    return f"data:{MIME[smallest.suffix]};base64,{data}"


def width(path: Path) -> int:
    """The width of a picture on the page in CSS pixels, so that its letters match the surrounding text in size."""
    header = path.with_name(f"{path.name}.png").read_bytes()[:24]
    return round(int.from_bytes(header[16:20]) * PIXELS)


def prose(text: str) -> Markup:
    """Plain text as HTML: `code`, *emphasis*, **bold**, and symbols for what a keyboard lacks."""
    safe = str(escape(text))
    safe = safe.replace("&gt;", ">").replace("&lt;", "<")
    for pattern, sign in SIGNS:
        safe = re.sub(pattern, sign, safe)
    safe = safe.replace("<", "&lt;").replace(">", "&gt;")
    safe = re.sub(r"`([^`]+)`", r"<code>\1</code>", safe)
    safe = re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", safe)
    return Markup(re.sub(r"(?<![\w*])\*([^*\s][^*]*)\*(?![\w*])", r"<em>\1</em>", safe))


def seconds(value: float | None) -> Markup:
    """A time in its own element; a dash for None."""
    if value is None:
        return Markup("–")
    words = f"{value:.1f} s" if value < 60 else clock(value)
    return Markup(f'<span class="time">{words}</span>')
