"""The moving picture of the README and of the first page without scripts: sixteen answers of a recorded run.

It comes from docs/explore/biography/biography.json, which `pmdkit replay --web` wrote, and needs no script: its frames,
one for each step, are shown in turn by CSS. Who asked for less motion sees the first.
"""

import html
import json
from pathlib import Path
from typing import Any

RUN = Path(__file__).parents[1] / "explore" / "biography" / "biography.json"
PICTURE = Path(__file__).parents[1] / "assets" / "biography.svg"
SUM = "29 + 28"

SECONDS, HOLD = 1.2, 4  # of a frame; the last one stays HOLD times as long
WIDTH, ROW, TOP, LEFT, CELL = 480, 19, 66, 14, 15  # pixels; CELL is a step of the map at the right
LETTERS = 36  # of an answer
STYLE = """
svg {
  --page: #fff; --fg: #1f2328; --soft: #636c76;
  --right: #00734f; --wrong: #a03c79; --good: #009e73; --bad: #e6bcd6;
}
@media (prefers-color-scheme: dark) {
  svg {
    --page: #16191f; --fg: #e6e9ee; --soft: #9aa4b0;
    --right: #2cc99a; --wrong: #e08fbd; --good: #1f9c77; --bad: #6b3a57;
  }
}
text { fill: var(--fg); font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace }
.say { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; fill: var(--soft) }
.ask { font-size: 17px; font-weight: 600; fill: var(--fg) }
.right { fill: var(--right) } .wrong { fill: var(--wrong) }
rect { fill: var(--page) } .r { fill: var(--good) } .w { fill: var(--bad) }
.now { fill: none; stroke: var(--fg); stroke-width: 1.5 }
"""


def biography() -> dict[str, Any]:
    """The recorded run, as its page reads it."""
    run: dict[str, Any] = json.loads(RUN.read_text(encoding="utf-8"))
    return run


def answers(group: dict[str, Any], passed: float) -> list[tuple[bool, str]]:
    """Whether each answer of a group is right, and its words on one line; the right ones come last."""
    words = [text.removesuffix("<|im_end|>").strip().replace("\n", " ⏎ ") for text in group["text"]]
    return sorted(
        zip((reward > passed for reward in group["reward"]), words, strict=True), key=lambda answer: answer[0]
    )


def picture(run: dict[str, Any]) -> str:
    """The SVG: sixteen answers to one sum, step after step, beside a map of all steps."""
    groups = next(prompt["groups"] for prompt in run["prompts"] if prompt["name"] == SUM)
    steps = [(group["step"], answers(group, run["passed"])) for group in groups]
    rows, whole = len(steps[0][1]), (len(steps) + HOLD - 1) * SECONDS
    x0, height = WIDTH - LEFT - CELL * len(steps), TOP + ROW * rows + 34
    one, last = 100 * SECONDS / whole, 100 * HOLD * SECONDS / whole
    style = STYLE + (
        f".f {{ visibility: hidden; animation: f {whole:g}s step-end infinite }} .f1 {{ visibility: visible }}\n"
        f"@keyframes f {{ 0% {{ visibility: visible }} {one:.3f}% {{ visibility: hidden }} }}\n"
        f"@keyframes l {{ 0% {{ visibility: visible }} {last:.3f}% {{ visibility: hidden }} }}\n"
        + "".join(f".f{n} {{ animation-delay: {(n - 1) * SECONDS:g}s }}\n" for n in range(1, len(steps) + 1))
        + f".f{len(steps)} {{ animation-name: l }}\n"
        "@media (prefers-reduced-motion: reduce) { .f { animation: none } }\n"
    )
    cells, frames = "", ""
    for n, (step, shown) in enumerate(steps, 1):
        x, lines = x0 + CELL * (n - 1), ""
        for i, (right, words) in enumerate(shown):
            y = TOP + ROW * i
            cells += (
                f'<rect class="{"r" if right else "w"}" x="{x + 1}" y="{y + 1}" width="{CELL - 2}" height="{ROW - 2}"/>'
            )
            short = words if len(words) <= LETTERS else words[: LETTERS - 1] + "…"
            kind, mark = ("right", "✓") if right else ("wrong", "✗")
            lines += f'<text class="{kind}" x="{LEFT}" y="{y + 14}">{mark} {html.escape(short)}</text>\n'
        told = f"step {step}: {sum(right for right, _ in shown)} of {rows} right"
        frames += (
            f'<g class="f f{n}">\n<text class="ask" x="{WIDTH - LEFT}" y="26" text-anchor="end">{told}</text>\n'
            f'<rect class="now" x="{x}" y="{TOP - 1}" width="{CELL}" height="{ROW * rows + 2}"/>\n{lines}</g>\n'
        )
    foot = f'class="say" y="{height - 14}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img"><title>{described(steps)}</title><style>{style}</style>\n'
        f'<rect width="{WIDTH}" height="{height}" rx="6"/>\n<text class="ask" x="{LEFT}" y="26">What is {SUM}?</text>\n'
        f'<text class="say" x="{LEFT}" y="48">SmolLM2-135M trained by PMD-mean: it is told right or wrong</text>\n'
        f'<text {foot} x="{LEFT}">one run, recorded</text><text {foot} x="{x0}">1</text>'
        f'<text {foot} x="{WIDTH - LEFT}" text-anchor="end">{steps[-1][0]}</text>'
        f'<text {foot} x="{(x0 + WIDTH - LEFT) / 2:g}" text-anchor="middle">steps</text>\n{cells}\n{frames}</svg>\n'
    )


def described(steps: list[tuple[int, list[tuple[bool, str]]]]) -> str:
    """The picture in words."""
    (first, before), (last, after) = steps[0], steps[-1]
    counts = [sum(right for right, _ in shown) for shown in (before, after)]
    return (
        f"Sixteen answers of SmolLM2-135M-Instruct to {SUM}, step by step of a run: {counts[0]} right in step {first}, "
        f"{counts[1]} in step {last}."
    )


def write_biography() -> str:
    """Write docs/assets/biography.svg; returns the picture in words."""
    drawn = picture(biography())
    PICTURE.write_text(drawn, encoding="utf-8")
    return drawn.partition("<title>")[2].partition("<")[0]
