"""The candidates: every objective at its defaults, and at the options under which it goes by its name."""

from collections.abc import Iterator
from dataclasses import fields
from functools import lru_cache
from typing import Any

from pmdkit.objectives import OBJECTIVES, Objective, traits
from pmdkit.objectives.trust_region import RADIUS
from pmdkit_lab.certify.trial import Trial

COMMON = ("pmd-mean", "pmd-part", "rloo", "grpo", "dapo", "gspo", "cispo", "reinforce-pp", "pmd-token")
PAIRED = ("pmd-mean", "rloo", "grpo", "gspo", "cispo")
VARIANTS: dict[str, list[Any]] = {
    "baseline": ["loo", "mean", "batch", "group", "log-mean-exp", "none"],
    "scale": ["half", "paper"],
    "std": ["population", "sample", "none", "mean"],
    "clip_mode": ["one-side", "two-side", "none"],
}
REGIONS = [region for region in RADIUS if region != "none"]
OPEN = {"clip_low": 50.0, "clip_high": 50.0}
WEIGHTED = {"importance_sampling": True}
EXTRA_OPTIONS: dict[str, list[dict[str, Any]]] = {
    "pmd-token": [{"baseline": "mean", "trust_region": region} | OPEN for region in REGIONS],
    "rec": [
        WEIGHTED,
        {"clip_mode": "two-side"} | WEIGHTED,
        *({"clip_mode": "none", "trust_region": region} | WEIGHTED for region in ["none", *REGIONS]),
    ],
    "pmd-mean": [{"baseline": "mean", "scale": "paper"}],
}
LATER = ("dro", "sppo", "qrpo", "topr", "pmd-score", "tb", "dr-grpo", "dapo", "asymre", "reinforce-pp", "opmd",
         "grpo-kl", "gmpo", "bapo", "rec", "flowrl")  # fmt: skip
"Objectives that are another one at some option; the other one is named."


@lru_cache(maxsize=8)
def trials(tau: float, options: tuple[tuple[str, Any], ...], among: tuple[str, ...], with_ref: bool) -> list[Trial]:
    """Every candidate as it is; kept, since another loss meets the same ones."""
    made = []
    for name, chosen, objective in candidates(tau, dict(options), among):
        uses = with_ref and bool(traits(objective).uses_reference)
        bare = Trial(name, chosen, objective, (), False, uses, alone=len(among) == 1)
        made += [bare, bare.divided()]
    return made


def candidates(
    tau: float, options: dict[str, Any], among: tuple[str, ...]
) -> Iterator[tuple[str, dict[str, Any], Objective]]:
    """Every objective at its defaults, with one option of VARIANTS moved, or with the ones of EXTRA_OPTIONS."""
    for name in among or OBJECTIVES:
        kind = OBJECTIVES[name]
        own = {option.name: option.default for option in fields(kind)}
        given = {key: value for key, value in options.items() if key in own} | ({"tau": tau} if "tau" in own else {})
        moved = [
            {key: value}
            for key in VARIANTS
            if key in own
            for value in VARIANTS[key]
            if value != given.get(key, own[key]) and (name, key) != ("dr-grpo", "std")
        ]
        for chosen in [{}, *moved, *EXTRA_OPTIONS.get(name, [])]:
            try:
                yield name, chosen, kind(**given | chosen)
            except ValueError:  # an option of that name means something else here
                continue


def both_lengths(bare: list[Trial]) -> list[Trial]:
    """Candidates as they are, and with each response divided by its length."""
    return [y for x in bare for y in (x, x.divided())]


def usual(trial: Trial) -> bool:
    """Whether a candidate is not another one times a constant, nor too far-fetched for two changes."""
    again = (trial.name in ("dr-grpo", "grpo-kl") and not trial.alone) or {"trust_region", "scale"} & set(trial.options)
    rare = trial.name in LATER and trial.name not in COMMON and set(trial.options) - {"std", "std_constant", "baseline"}
    return not (again or rare or trial.options.get("std") == "mean")
