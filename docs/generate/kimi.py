"""The page "Which of these is Kimi's loss?": where each formula ends on the same data, and how fast they part.

`python docs/generate/kimi.py --measure` measures again and writes docs/use/kimi.json; without it, the tables of
docs/use/kimi.md are written from that record, and from that of the code that was compared, tests/field/field.toml.
The build draws the picture. `tests/docs/test_loss_pages.py` holds it to the theory.
"""

import argparse
import json
import math
import textwrap
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from pmdkit.figures.style import BLUE, VERMILLION, style
from pmdkit.objectives import (
    OPMD,
    REC,
    Groups,
    Objective,
    PMDBetween,
    PMDMean,
    PMDPart,
    PMDScore,
    PMDToken,
    credit,
    total,
)
from pmdkit_lab.figures.drawing import Drawing

PAGE = Path(__file__).parents[1] / "use" / "kimi.md"
RECORD = PAGE.with_suffix(".json")
START = 2 / 16  # pass rate of pi_old
BEGIN, END = "<!-- {}: python docs/generate/kimi.py -->\n", "<!-- end of {} -->\n"
FIELD = tomllib.loads((Path(__file__).parents[2] / "tests/field/field.toml").read_text(encoding="utf-8"))["cut"]
CODE = {where: entry for entry in FIELD for where in entry["losses"]}  # losses whose own code was compared
LossOn = Callable[[Tensor, Tensor, Tensor], Callable[[Tensor], Tensor]]  # rewards, old, mask: a loss of logp
TAUS = (0.1, 0.3)
DRIFTS = (0.02, 0.1, 0.35, 1.0)
RIGHT = (0, 9)  # of 16 responses
OPEN: dict[str, Any] = {"clip_low": 50.0, "clip_high": 50.0, "baseline": "mean"}  # no band in reach


@dataclass(frozen=True)
class Row:
    """A loss that a codebase or a paper calls Kimi's, or a relative of it: where it is and what it is here.

    Of a loss in the record of tests/field, the project's own code gave the gradient of the objective; the others were
    written from a paper or from documentation, `source`.
    """

    where: str
    formula: str
    here: str
    objective: Callable[[float], Objective]
    solves: str
    source: str = ""


MIXED = "KL and chi-square"
ROWS = (
    Row("Kimi K1.5, eq. 3", "$A \\log\\pi(y) - \\frac{\\tau}{2} s^2$", '`PMDMean(baseline="mean", norm="none")`',
        lambda tau: PMDMean(tau, "none", "mean"), MIXED, "arXiv:2501.12599"),
    Row("prime-rl `kimi_k15`, `sequence_regularizer`", "the same", '`PMDMean(baseline="mean", norm="tokens")`',
        lambda tau: PMDMean(tau, "tokens", "mean"), MIXED),
    Row("Kimi K2", "$(A - \\tau s)^2$", '`PMDMean(baseline="mean", norm="none")`, times $2\\tau$',
        lambda tau: PMDMean(tau, "none", "mean"), MIXED, "arXiv:2507.20534"),
    Row("prime-rl `pmd_mean`", "$A/\\tau - s$, detached, times $\\log\\pi(y)$",
        '`PMDMean(baseline="mean", norm="none")`, over $\\tau$', lambda tau: PMDMean(tau, "none", "mean"), MIXED,
        "text of PR 3381, closed"),
    Row("compose-rl `SMD`", "$(\\tau s - A)^2$, any baseline", '`PMDMean(norm="none")`, times $2\\tau$',
        lambda tau: PMDMean(tau, "none"), MIXED, "branch @f7ba09a"),
    Row("OpenKimi, `rloo`", "$\\frac{1}{2\\tau T}(A_{loo} - \\tau s)^2$", "`PMDMean()`", lambda tau: PMDMean(tau),
        f"{MIXED}; lengths weigh"),
    Row("OpenKimi, `ploo`", "the same, $A = r - \\tau\\log Z_{loo}$", "`PMDPart()`", lambda tau: PMDPart(tau), "KL"),
    Row("OAPL in NeMo-RL", "$(\\tau (s + \\log Z) - r)^2$", '`PMDPart(baseline="mean", norm="none")`',
        lambda tau: PMDPart(tau, "none", baseline="mean"), "KL", "PR 3825 @4930f1e"),
    Row("TRL A2PO, $\\beta_1 = 5\\beta_2$", "$(\\beta_2 s - r + V_{\\beta_1})^2$",
        '`PMDBetween(k=0.2, baseline="mean", norm="none")`',
        lambda tau: PMDBetween(0.2, tau, "none", baseline="mean"), f"{MIXED}, less of it"),
    Row("TRL A2PO, as shipped: $\\beta_1 = 500\\beta_2$", "the same", "`PMDBetween(k=0.002, ...)`",
        lambda tau: PMDBetween(0.002, tau, "none", baseline="mean"), MIXED),
    Row("verl `dro`", "$\\sum_t A\\log\\pi_t - \\frac{\\tau}{2} s_t^2$", "`PMDScore()`", lambda tau: PMDScore(tau),
        f"{MIXED} of one token"),
    Row("Tinker `dro`", "the same, summed over the batch", "`PMDScore()`, times the tokens",
        lambda tau: PMDScore(tau), f"{MIXED} of one token", "docs of the service"),
    Row("prime-rl `kimi_k15`, as shipped", "the same as `dro`", "`PMDScore()`", lambda tau: PMDScore(tau),
        f"{MIXED} of one token"),
    Row("Trinity `rec`, `k2`", "the same as `dro`, coefficient $\\tau/2$", "`PMDScore()`", lambda tau: PMDScore(tau),
        f"{MIXED} of one token"),
    Row("Kimi K2.5, eq. 1, band of 0.5 nats", "$\\sum_t \\mathrm{clip}(\\rho_t) A - \\frac{\\tau}{2} s_t^2$",
        '`PMDToken(baseline="mean")`', lambda tau: PMDToken(tau, baseline="mean"), "stops at the band",
        "arXiv:2602.02276"),
    Row("the same without the band", "$\\sum_t \\rho_t A - \\frac{\\tau}{2} s_t^2$",
        "`PMDToken(clip_low=50, clip_high=50, ...)`", lambda tau: PMDToken(tau, **OPEN), "no regulariser; not convex"),
    Row("prime-rl `default`, kl_tau = tau / 2", "the same where $\\pi_t$ moved by at most 0.2 along $A$",
        '`PMDToken(..., trust_region="dppo-tv")`', lambda tau: PMDToken(tau, trust_region="dppo-tv", **OPEN),
        "stops at $\\pi_{old} + 0.2$"),
    Row("prime-rl `default`, kl_tau = 0.001 as shipped", "the same", "the same, tau = 0.002",
        lambda tau: PMDToken(0.002, trust_region="dppo-tv", **OPEN), "the mask only"),
    Row("verl `dppo_tv` (no Kimi in it)", "$\\sum_t \\rho_t A$ in the same region", '`REC(clip_mode="none", ...)`',
        lambda tau: REC("none", True, trust_region="dppo-tv"), "nothing: a mask"),
    Row("Trinity `opmd`", "$A\\log\\pi(y) / (1 + \\tau)$", "`OPMD()`", lambda tau: OPMD(tau), "nothing: no minimum"),
)  # fmt: skip


def same_data(tokens: int) -> tuple[Tensor, Tensor]:
    """[16, T] the token of each response and the prefix it follows: one token of 16, or four of 2."""
    if tokens == 1:
        return torch.arange(16)[:, None], torch.zeros(16, 1, dtype=torch.long)
    shift = torch.arange(3, -1, -1)
    response = torch.arange(16)[:, None]
    return (response >> shift) & 1, (2 ** torch.arange(4) - 1) + (response >> (shift + 1))


def ours(objective: Objective) -> LossOn:
    """An objective as a loss of the log-probabilities on given draws: how the code of other projects is called too."""

    def on(reward: Tensor, old: Tensor, mask: Tensor) -> Callable[[Tensor], Tensor]:
        batch = credit(objective, Groups(reward, torch.full_like(reward, 1 / reward.shape[1])), old, mask)
        return lambda logp: total(objective, replace(batch, logp=logp))

    return on


def end(loss_on: LossOn, tokens: int, noise: float = 0.0, steps: int = 1500) -> dict[str, Any]:
    """Where plain gradient flow on the logits comes to rest: pi_old uniform over 16 responses, two of them right.

    The steps shrink after the hundredth, so that a flow on the edge of a mask comes to rest there. `steps` is how many
    it took: at 1500, the largest, the end is an edge or the flow goes on.
    """
    token, prefix = same_data(tokens)
    shape = (1, 16) if tokens == 1 else (15, 2)
    logits = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * noise
    logits.requires_grad_()
    reward = torch.zeros(1, 16, dtype=torch.float64)
    reward[0, list(RIGHT)] = 1.0
    old = torch.full(token.shape, -math.log(shape[1]), dtype=torch.float64)
    loss = loss_on(reward, old, torch.ones_like(token, dtype=torch.bool))
    first = 0.0
    for step in range(steps):
        (slope,) = torch.autograd.grad(loss(logits.log_softmax(1)[prefix, token]), logits)
        size = float(slope.norm())
        first = first or size
        if size < 1e-9 * first:
            break
        move = slope / first
        move = move * min(1.0, 0.5 / float(move.abs().max())) * min(1.0, 100 / (step + 1))
        with torch.no_grad():
            logits -= move
    with torch.no_grad():
        chance = logits.log_softmax(1)[prefix, token].sum(1).exp()
    right = [round(float(chance[i]), 4) for i in RIGHT]
    return {"passed": round(sum(float(chance[i]) for i in RIGHT), 4), "right": right, "steps": step + 1}


def stale(drift: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rewards {0, 1} [2, 4], old and new log-probabilities and mask [8, 6]: responses of 1 to 6 tokens.

    `drift` is the standard deviation of the log ratio of a token, nats.
    """
    random = torch.Generator().manual_seed(7)
    mask = torch.arange(6) < torch.tensor([1, 2, 4, 6, 3, 5, 2, 6])[:, None]
    old = -2.4 * torch.rand(8, 6, generator=random, dtype=torch.float64) - 0.05
    new = (old + drift * torch.randn(8, 6, generator=random, dtype=torch.float64)).clamp_max(-0.01)
    return torch.tensor([[1.0, 0, 0, 1], [0, 0, 0, 1]], dtype=torch.float64), old, new, mask


def parted(objective: Objective, drift: float) -> float:
    """Distance of two unit gradients, from Kimi K1.5's. 0 is the same direction, 1.41 orthogonal."""
    reward, old, new, mask = stale(drift)
    directions = []
    for each in (objective, PMDMean(TAUS[0], "none", "mean")):
        logp = new.clone().requires_grad_()
        (slope,) = torch.autograd.grad(ours(each)(reward, old, mask)(logp), logp)
        directions.append(slope / slope.norm())
    return round(float((directions[0] - directions[1]).norm()), 3)


def measure() -> dict[str, Any]:
    """The record: of every row its ends, its distance from Kimi K1.5's, and what is left of two equal right answers."""
    rows: dict[str, Any] = {}
    for row in ROWS:
        print(row.where, flush=True)
        rows[row.where] = {
            "ends": {f"{tau:g}": {str(t): end(ours(row.objective(tau)), t) for t in (1, 4)} for tau in TAUS},
            "parted": [parted(row.objective(TAUS[0]), drift) for drift in DRIFTS],
            "equal": end(ours(row.objective(TAUS[0])), 1, noise=1e-3, steps=3000)["right"],
        }
    return rows


def table(record: dict[str, Any]) -> str:
    """The table of the page: one row each."""
    lines = [
        '| "Kimi\'s loss" in | version | as implemented | ends at: 1 token, 4 tokens | tau 0.3 | solves | here | by |',
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in ROWS:
        near, far = (record[row.where]["ends"][f"{tau:g}"] for tau in TAUS)
        ends = [", ".join(shown(each[t]) for t in ("1", "4")) for each in (near, far)]
        lines.append(
            f"| {row.where} | {row.source or version(row.where)} | {row.formula} | **{ends[0]}** | {ends[1]} | "
            f"{row.solves} | {row.here} | {by(row.where)} |"
        )
    return "\n".join(lines) + "\n"


def version(where: str) -> str:
    """The release of a loss whose code was checked, or its commit and a branch that is not the main one."""
    if where not in CODE:
        return ""
    entry = CODE[where]
    if "package" in entry:
        return str(entry["package"]).split("==")[1]
    branch = "" if entry["branch"] in ("main", "master") else "branch "
    return f"{branch}@{entry['checkout'].split('@')[1][:7]}"


def by(where: str) -> str:
    """How a loss was found to be its objective, and when."""
    return f"code, {CODE[where]['checked']:%b %Y}" if where in CODE else "formula"


def others() -> str:
    """The third table: losses that nobody calls Kimi's, checked in the same way."""
    lines = ["| loss | version | here | by |", "|---|---|---|---|"]
    for where, entry in CODE.items():
        options = dict(entry["losses"][where])
        if name := options.pop("objective", None):
            given = ", ".join(f"{key}={value!r}" for key, value in options.items()).replace("'", '"')
            lines.append(f"| {where} | {version(where)} | `{name}`: `{given}` | {by(where)} |")
    return "\n".join(lines) + "\n"


def shown(found: dict[str, Any]) -> str:
    """A pass rate; with a sign where the flow did not come to rest."""
    return f"{found['passed']:.3f}" + ("~" if found["steps"] == 1500 else "")


def staleness(record: dict[str, Any]) -> str:
    """The second table: how fast the directions part, and what is left of two equal right answers."""
    lines = [
        "| loss | drift " + " | ".join(f"{drift:g}" for drift in DRIFTS) + " | two equal right answers end at |",
        "|---" * (len(DRIFTS) + 2) + "|",
    ]
    for row in ROWS:
        found = record[row.where]
        cells = [f"{value:.2f}" for value in found["parted"]]
        low, high = sorted(found["equal"])
        lines.append(f"| {row.where} | " + " | ".join(cells) + f" | {low:.3f}, {high:.3f} |")
    return "\n".join(lines) + "\n"


def name_of(where: str) -> str:
    """A row's name in the picture, which has no equations and no row above it."""
    plain = where.replace("\\beta", "β").translate({ord("`"): "", ord("$"): ""})
    return plain.replace("_1", "₁").replace("_2", "₂").replace("the same", "Kimi K2.5")


def draw(record: dict[str, Any]) -> Drawing:
    """Where every row ends, read as one token and as four; rows with the same ends, to two digits, share a line."""
    same: dict[tuple[float, float], list[str]] = {}
    for row in ROWS:
        one, four = (round(record[row.where]["ends"]["0.1"][t]["passed"], 2) for t in ("1", "4"))
        same.setdefault((one, four), []).append(name_of(row.where))
    ends, names = zip(*sorted(same.items()), strict=True)
    words = [textwrap.wrap("; ".join(each), 38) for each in names]
    room = np.array([0.6 + 0.6 * len(each) for each in words])  # a line of the picture is as high as its words
    places = room.cumsum() - room / 2
    with style():
        figure = Figure(figsize=(7.2, 4.6), layout="constrained")
        ax = figure.add_subplot()
        ax.axvline(START, color="0.6", linestyle=":", label=f"before: {START:g}")
        ax.hlines(places, *np.transpose(ends), color="0.7", lw=3, zorder=1)
        ax.plot([one for one, _ in ends], places, "o", color=BLUE, label="one token of 16")
        ax.plot([four for _, four in ends], places, "s", color=VERMILLION, mfc="none", ms=8, label="four tokens of 2")
        ax.set_yticks(places, ["\n".join(each) for each in words], fontsize=7.5)
        ax.set(xlim=(0, 1.03), ylim=(0, room.sum()), xlabel="pass rate at rest, tau = 0.1")
        ax.grid(visible=False, axis="y")
        figure.legend(loc="outside upper center", ncols=3)
    told = "; ".join(f"{each[0]}: {one:.2f} and {four:.2f}" for (one, four), each in zip(ends, names, strict=True))
    alt = f"Pass rates at rest by loss, for one token and for four: {told}."
    return Drawing(figure, alt, alt, {"ends": np.array(ends)})


def between(page: str, name: str, text: str) -> str:
    """The page with new text between its marks."""
    begin, end_mark = BEGIN.format(name), END.format(name)
    before, rest = page.split(begin)
    return before + begin + "\n" + text + "\n" + end_mark + rest.split(end_mark)[1]


def written(page: str, record: dict[str, Any]) -> str:
    """The page with the tables of the record."""
    tables = {"ends": table(record), "staleness": staleness(record), "others": others()}
    for name, text in tables.items():
        page = between(page, name, text)
    return page


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", action="store_true", help="measure again, about five minutes")
    if parser.parse_args().measure:
        RECORD.write_text(json.dumps(measure(), indent=1) + "\n", encoding="utf-8")
    found = json.loads(RECORD.read_text(encoding="utf-8"))
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")
