"""The atlas, "what 27 losses solve": `explain` asked of every registered objective and two variants, numbers and table.

`python docs/generate/atlas.py` asks again and writes docs/explore/atlas/numbers.json and the table of the page;
`--check` asks and compares, and writes nothing; `--only NAME ...` asks for some and keeps the others. The picture comes
from explorables/atlas.py; `--pdf FILE` saves it for printing.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from pmdkit.objectives import OBJECTIVES, Objective, load_objective
from pmdkit_lab.explain import ExactSteps, StationaryPoint, exact_steps, explain, sampled_first_step
from pmdkit_lab.explain.report import certificate, headline, share

ROOT = Path(__file__).parents[2]
NUMBERS = "docs/explore/atlas/numbers.json"
PAGE = "docs/explore/atlas/index.md"
BEGIN, END = "<!-- atlas: python docs/generate/atlas.py -->\n", "<!-- end of the atlas -->"
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    # registered losses with other options: another direction of the KL, and the plain gradient with a KL
    "grpo-k2": ("grpo-kl", {"kl_loss_type": "k2"}),
    "rloo-k3": ("rloo", {"kl_coef": 0.05, "kl_estimator": "k3", "kl_in": "loss"}),
}
UNSETTLED = ("bapo", "flowrl")  # by `explain`
LOSSES = {name: (name, {}) for name in OBJECTIVES if name not in UNSETTLED} | VARIANTS
RATES = np.array([0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95, 0.99])
TAUS = (0.01, 0.03, 0.1, 0.3, 1.0)
DRAWS = (4, 16, 64)
P = 0.1
SAME = 1e-4  # relative difference that --check tolerates
NOISE = ("residual", "normalisation", "margin", "certificate")  # rounding noise, different on every machine


def made(name: str, **options: Any) -> Objective:
    """A loss of the atlas."""
    base, own = LOSSES[name]
    return load_objective(base, **own, **options)


def ask(name: str) -> dict[str, Any]:
    """Everything the atlas says about one loss."""
    objective = made(name)
    told = explain(objective)
    exact = dict(told.first.by_pass_rate)[P]
    draws = [sampled_first_step(objective, P, n) for n in DRAWS]
    steps = exact_steps(objective, RATES)
    surfaces = {}
    if np.isfinite(told.tau):
        for tau in TAUS:
            surfaces[f"{tau:g}"] = eta_of(exact_steps(made(name, tau=tau), RATES))
    at_p = int(np.flatnonzero(P == RATES)[0])
    return {
        "headline": headline(told),
        "certificate": certificate(told),
        "proofs": {key: proof(rest) for key, rest in told.rests.items()},
        "kind": told.kind,
        "tau": told.tau if np.isfinite(told.tau) else None,
        "eta": eta_of(steps),
        "eta_by_tau": surfaces,
        "ratios": [number(np.exp(steps.log_ratio_right[at_p])), number(np.exp(steps.log_ratio_wrong[at_p]))],
        "length": [number(told.first.token), number(told.lengths.short_over_long if told.lengths else np.nan)],
        "ends": [
            [number(np.exp(end)), back]
            for end, back in (
                (told.force.right_end, told.force.right_back),
                (told.force.wrong_end, told.force.wrong_back),
            )
        ],
        "draws": [[number(mean / exact), number(sd / exact)] if exact else [None, None] for mean, sd in draws],
    }


def proof(rest: StationaryPoint) -> dict[str, Any]:
    """The certificate of one graded prompt."""
    told = rest.certificate
    return {
        "proof": told.proof,
        "kinks": len(told.kinks),
        "rivals": told.rivals,
        "residual": number(told.residual),
        "why": told.why,
    }


def eta_of(steps: ExactSteps) -> list[float | None]:
    """Share of the gap that one step closes; None where the flow never rests."""
    return [number(eta) if rests else None for eta, rests in zip(steps.eta, steps.rests, strict=True)]


def number(value: float) -> float | None:
    """A number with six digits; None if it is not finite."""
    return float(f"{value:.6g}") if np.isfinite(value) else None


def table(found: dict[str, Any]) -> str:
    """The table and the certificates under it."""
    rows = [
        "| loss | regulariser: what it solves | one-step map: pass rate after, from 0.01, 0.1, 0.5, 0.9 | contraction: "
        "share of the gap closed, at the same | ratios of right, wrong at 0.1 | length | plateau, and where a push "
        "ends | sensitivity to n: step from 4, 16, 64 draws |",
        "|---|---|---|---|---|---|---|---|",
    ]
    places = [int(np.flatnonzero(p == RATES)[0]) for p in (0.01, 0.1, 0.5, 0.9)]
    for name, each in found.items():
        link = f"#certificate-{name}"
        steps = ", ".join(after(each["eta"][k], RATES[k]) for k in places)
        closed = ", ".join("never rests" if eta is None else share(eta) for eta in (each["eta"][k] for k in places))
        right, wrong = each["ratios"]
        ratios = "no rest" if right is None else f"{right:.3g}, {wrong:.2g}"
        token, short = each["length"]
        length = "-" if token is None else f"a token of 4 counts {token:.3g}"
        length += "" if short is None else f"; short over long {short:.3g}"
        ends = f"{PLATEAU[each['kind']]}; " + ", ".join(ending(*end) for end in each["ends"])
        draws = ", ".join("-" if mean is None else f"{mean:.3g} ± {sd:.2g}" for mean, sd in each["draws"])
        cells = (f"`{name}`", each["headline"].replace("|", "\\|"), steps, closed, ratios, length, ends, draws)
        rows.append("| " + " | ".join([cells[0], *(f"[{cell}]({link})" for cell in cells[1:])]) + " |")
    proofs = [
        f'<a id="certificate-{name}"></a>**`{name}`**: {each["certificate"].removeprefix("certificate: ")}.\n'
        for name, each in found.items()
    ]
    return "\n".join(rows) + "\n\n### Certificates\n\n" + "\n".join(proofs)


PLATEAU = {
    "minimiser": "none",
    "plateau": "yes",
    "boundary": "none: zeros",
    "unbounded": "none: no end",
    "constant": "all is one",
    "not settled": "not settled",
}


def after(eta: float | None, p: float) -> str:
    """The pass rate after one step."""
    return "1 (no rest)" if eta is None else share(float(1 - (1 - eta) * (1 - p)))


def ending(ratio: float | None, back: bool) -> str:
    """Where a push ends and what is beyond."""
    return "never" if ratio is None else f"{ratio:.3g} {'(pulled back)' if back else '(left alone)'}"


def different(old: Any, new: Any, at: str = "") -> list[str]:
    """Where two results differ by more than rounding."""
    if isinstance(old, dict) and isinstance(new, dict):
        odd = [f"{at}{key}" for key in old.keys() ^ new.keys()]
        shared = [key for key in old if key in new and key not in NOISE]
        return odd + [line for key in shared for line in different(old[key], new[key], f"{at}{key} ")]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [line for k, (a, b) in enumerate(zip(old, new, strict=True)) for line in different(a, b, f"{at}{k} ")]
    if isinstance(old, float) and isinstance(new, (int, float)):
        return [] if abs(old - new) <= SAME * max(abs(old), 1e-3) else [f"{at}: {old} is now {new}"]
    return [] if old == new else [f"{at}: {old} is now {new}"]


def write(found: dict[str, Any]) -> None:
    """Write the numbers, and the table on the page."""
    data = {"rates": RATES.tolist(), "taus": list(TAUS), "losses": found}
    (ROOT / NUMBERS).write_text(
        json.dumps(data, separators=(",", ":")).replace('},"', '},\n"') + "\n", encoding="utf-8"
    )
    head, rest = (ROOT / PAGE).read_text(encoding="utf-8").split(BEGIN)
    (ROOT / PAGE).write_text(f"{head}{BEGIN}\n{table(found)}\n{END}{rest.split(END)[1]}", encoding="utf-8")


def main() -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="ask anew and compare; exit code 1 where something differs"
    )
    parser.add_argument("--only", nargs="+", choices=list(LOSSES), help="ask these, keep the numbers of the others")
    parser.add_argument("--page", action="store_true", help="write the table from the numbers that are there")
    parser.add_argument(
        "--pdf", type=Path, help="write the picture of the numbers that are there, for a wall, and stop"
    )
    given = parser.parse_args()
    if given.pdf is not None:
        from generate.explorables.atlas import draw

        draw().figure.savefig(given.pdf)
        return 0
    kept = json.loads((ROOT / NUMBERS).read_text(encoding="utf-8"))["losses"] if (ROOT / NUMBERS).exists() else {}
    asked = () if given.page else given.only or LOSSES
    found = {}
    for name in asked:
        print(f"asking {name}", file=sys.stderr, flush=True)
        found[name] = ask(name)
    if given.check:
        off = different({name: kept.get(name) for name in asked}, json.loads(json.dumps(found)))
        print("\n".join(off) or f"{len(found)} losses as written")
        return int(bool(off))
    missing = [name for name in LOSSES if name not in found and name not in kept]
    if missing:
        parser.error(f"no numbers yet of {', '.join(missing)}; ask them with --only")
    write({name: found.get(name) or kept[name] for name in LOSSES})
    return 0


if __name__ == "__main__":
    sys.exit(main())
