"""Which loss is this? Somebody's own loss function, compared with every objective of pmdkit under every convention.

The gradients of both are taken on the ordinary batches of `probes`. They agree up to a factor, which may depend on the
batch as a sum, a mean or a width does, or they do not. Then those on the special batches must agree at the same factor.
A change that makes an objective agree is a slip.
"""

import re
from collections.abc import Iterator
from dataclasses import fields, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from pmdkit.errors import UsageError, unknown
from pmdkit.objectives import GRPO, OBJECTIVES, DrGRPO, Objective, PMDPart, traits
from pmdkit_lab.certify.candidates import COMMON, LATER, PAIRED, both_lengths, trials, usual
from pmdkit_lab.certify.fit import fit_all
from pmdkit_lab.certify.penalty import in_reward, with_penalty
from pmdkit_lab.certify.probes import flat
from pmdkit_lab.certify.slips import (
    CHANGES,
    SHIPPED,
    STDS,
    Slip,
    advantages,
    at_reference,
    credit_options,
    slips,
    with_changed_advantage,
    with_std,
)
from pmdkit_lab.certify.trial import REL_TOL, LossFunction, Question, Trial, ask
from pmdkit_lab.certify.verdict import CERTIFIED, Found, Verdict, best, explained, judge, judge_all

CREDIT_TOL = 5e-6  # of advantages: a constant of 1e-6 in the std may be there or not
ROUNDED_TOL = 0.03  # bfloat16 leaves up to 1/256 in logp, and this in small differences


def certify(loss: LossFunction | Objective, tau: float = 0.1, among: tuple[str, ...] = (), **options: Any) -> Verdict:
    """Name the objective that a loss is, and what differs.

    Args:
        loss: a function, see `LossFunction`, or an objective.
        tau: the temperature that the loss was given, reward units.
        among: names of the objectives to compare with; empty for all. Then a name in that of the function counts:
            what is called `rloo_loss` and is another objective is compared with RLOO alone.
        options: of the objectives to compare with, where they have them, such as clip_high=0.28.

    Raises:
        UsageError: the loss or its gradient by logp is not finite on ordinary data, or the loss is not one number.
    """
    question = ask(loss)
    if all(not bool(slope.any()) for _, slope in question.slopes["ordinary"]):
        return Verdict("", {}, ("it has no gradient: logp is detached, or logp_old is logp itself",), 0.0, False)

    def among_these(names: tuple[str, ...]) -> tuple[list[Trial], Verdict]:
        some = trials(tau, tuple(sorted(options.items())), names, question.with_ref)
        return some, as_asked(search(question, some, tau), names, options)

    plain, verdict = among_these(among)
    if among and not verdict.error <= REL_TOL:  # not what was asked for, but perhaps another
        _, other = among_these(())
        return replace(other, slips=(*other.slips, f"not {' or '.join(among)}")) if other.error <= REL_TOL else verdict
    if among or not verdict.error <= REL_TOL:
        return verdict
    promise = promised(loss)
    if promise and not issubclass(OBJECTIVES[verdict.name], OBJECTIVES[promise]):
        _, other = among_these((promise,))
        if other.error <= REL_TOL and (verdict.right or len(other.slips) <= len(verdict.slips)):
            return replace(other, also=verdict.called if verdict.right and other.slips else "")
    # a rarer objective at an option: say what it is in terms of a common one
    if verdict.right and verdict.name in LATER and verdict.name not in COMMON and set(verdict.options) - {"width"}:
        other = search(question, [x for x in plain if x.name not in LATER], tau, common=True)
        return replace(verdict, also=other.said() if other.error <= REL_TOL and len(other.slips) == 1 else "")
    return verdict


def as_asked(verdict: Verdict, among: tuple[str, ...], given: dict[str, Any]) -> Verdict:
    """The verdict with the options that were given; where one name was, any other option is a difference."""
    kind = OBJECTIVES[verdict.name]
    own = {f.name: f.default for f in fields(kind)}
    options = {key: value for key, value in given.items() if own.get(key, value) != value} | verdict.options
    # papers leave open which of two stds, its small constant, and the constant length of Dr. GRPO; and outside the kin
    # of GRPO, whose names differ by the length rule, the sum over tokens is the formula of the paper
    either = {own.get("std"), options.get("std")} <= set(dict(STDS))
    summed = options.get("norm") == "none" and not issubclass(kind, GRPO)
    left = {"std_constant": True, "width": True, "std": either, "norm": summed}
    other = [f"{key}={value}" for key, value in options.items() if given.get(key) != value and not left.get(key)]
    unasked = f"{', '.join(other)} was not asked for: --set {' --set '.join(other)}"
    differs = other and len(among) == 1 and verdict.right
    return replace(verdict, options=options, slips=(unasked,) if differs else verdict.slips)


def assert_is(loss: LossFunction | Objective, name: str, tau: float = 0.1, **options: Any) -> None:
    """Assert that a loss is this objective at these options; to be called in a test, takes a second.

    Args:
        loss: a function, see `LossFunction`, or an objective.
        name: a key of OBJECTIVES.
        tau: the temperature that the loss was given, reward units.
        options: of the objective, such as clip_high=0.28 or norm="tokens"; the others are its defaults. std_constant is
            what is added to its std, such as 1e-6.

    Raises:
        AssertionError: the loss is another one; says what differs.
        UsageError: as for `certify`.
    """
    if name not in OBJECTIVES:
        raise UsageError(f"{unknown('objective', name, OBJECTIVES)}")
    own = {option.name for option in fields(OBJECTIVES[name])}
    constant = options.get("std_constant")
    chosen = {key: value for key, value in options.items() if key != "std_constant"}
    objective = OBJECTIVES[name](**chosen, **({"tau": tau} if "tau" in own else {}))
    changes: tuple[Slip, ...] = ()
    if constant is not None:
        slip = with_std(objective, getattr(objective, "std", ""), constant)
        if slip is None:
            raise UsageError(f"{name} got std_constant={constant}; it divides by no std: leave it out")
        changes = (slip,)
    question = ask(loss)
    uses = question.with_ref and bool(traits(objective).uses_reference)
    for by_length in (False, True):
        verdict = judge(question, Trial(name, {}, objective, changes, by_length, uses), tau)[2]
        if verdict.right and not set(verdict.options) - {"width"}:
            return
    found = certify(loss, tau, (name,), **options)
    expected = ", ".join(f"{key}={value}" for key, value in options.items())
    raise AssertionError(f"the loss is not {name}{f' ({expected})' if options else ''}: {found.sentence()}")


def promised(loss: LossFunction | Objective) -> str:
    """The longest name of an objective in that of a function, "dr-grpo" for "dr_grpo_loss"; empty if there is none."""
    words = re.findall("[a-z0-9]+", getattr(loss, "__name__", "").lower())
    said = {"".join(words[i:j]) for i in range(len(words)) for j in range(i + 1, len(words) + 1)}
    return max((name for name in OBJECTIVES if name.replace("-", "") in said), key=len, default="")


def search(question: Question, plain: list[Trial], tau: float, common: bool = False) -> Verdict:
    """The best explanation, from the likely to the far-fetched: a later stage is entered if the earlier ones fail."""
    found: Found = []
    judge_all(question, plain, tau, found)
    if explained(found, 0):
        return best(found)
    # What the loss takes as its advantage shows where pi = pi_old and all lengths are equal, whatever else it does.
    bases = credited(question, plain, tau) or [x for x in plain if not x.by_length]
    if common:
        judge_all(question, both_lengths(bases), tau, found)
        return best(found)
    if question.with_ref:
        at_ref = Slip("pi_ref stands in the place of pi_old", at_reference)
        judge_all(question, both_lengths([x.with_change(at_ref) for x in bases]), tau, found)
    fewest = min(x.slips for x in bases)
    own = [x for x in bases if x.slips == fewest]
    likely = [x for x in own if x.name in COMMON or x.alone]
    for some in (likely, [x for x in own if usual(x) and x not in likely], [x for x in bases if x.slips > fewest]):
        both = both_lengths(some)
        judge_all(question, both, tau, found)
        for stage in (fit_all, with_penalty, in_reward):
            if not explained(found, 1):
                stage(question, both, tau, found)
        if explained(found, 1):
            return best(found)
        slipped = both_lengths([x.with_change(slip) for x in some if usual(x) for slip in slips(x.objective, tau)])
        judge_all(question, slipped, tau, found)
        for stage in (with_penalty, fit_all):
            if not explained(found, 1):
                stage(question, [x for x in slipped if x.name in COMMON or x.alone], tau, found)
        if explained(found, 2):
            return best(found)
    judge_all(question, pairs(likely, tau), tau, found)
    verdict = best(found)
    slopes = [slope for _, slope in question.slopes["ordinary"]]
    if verdict.error > REL_TOL:
        for dtype, limit in ((torch.bfloat16, ROUNDED_TOL), (torch.float16, 0.1 * ROUNDED_TOL)):
            if verdict.error < limit and all(bool((x.to(dtype) == x).all()) for x in slopes):
                rounded = f"its gradient has the few bits of {str(dtype)[6:]}: log-probabilities are cast to it"
                return replace(verdict, slips=(rounded,))
    return verdict


def credited(question: Question, plain: list[Trial], tau: float) -> list[Trial]:
    """Candidates whose advantage is that of the loss: their own, an option's, or another one as a slip."""
    wanted = torch.cat([-len(slope) * slope.sum(1) for _, slope in question.slopes["flat"]])
    rounded = all(bool((slope.bfloat16() == slope).all()) for _, slope in question.slopes["ordinary"])
    tol = ROUNDED_TOL if rounded else CREDIT_TOL
    bare = [x for x in plain if not x.by_length]
    bare += [x.with_change(slip) for x in bare if not x.options for slip in credit_options(x.objective)]
    # rows of advantages, and the candidates that have them
    known: dict[bytes, tuple[list[Tensor], list[Trial]]] = {}
    for trial in bare:
        rows = [-len(slope) * slope.sum(1) for slope in trial.on("flat")]
        key = (torch.cat(rows) * 1e9).round().numpy().tobytes()
        known.setdefault(key, (rows, []))[1].append(trial)
    pool = list(known.values())
    single = [x for x in bare if not x.changes and "std" not in x.options and usual(x)
              and ("baseline" not in x.options or x.name == "reinforce-pp")]  # fmt: skip
    for of_part in (False, True):
        some = [x for x in single if isinstance(x.objective, PMDPart) >= of_part]
        for slip in advantages(tau, of_part):
            rows = [slip.twist.args[0](probe.groups).flatten() for probe in flat()]  # type: ignore[union-attr]
            pool.append((rows, [with_credit(x, slip) for x in some]))
    made: list[Trial] = []
    for offset in (False, True):  # an entropy bonus adds one number to every row
        if not made:
            fitting = same_credit(wanted, [rows for rows, _ in pool], tol, offset)
            made = [x for (_, group), fits in zip(pool, fitting, strict=True) if fits for x in group]
    for words, change in CHANGES.items() if not made else ():
        changed = [[change(row, probe) for row, probe in zip(rows, flat(), strict=True)] for rows, _ in pool]
        slip = Slip(words, partial(with_changed_advantage, change))
        made += [x.with_change(slip) for (_, group), fits in zip(pool, same_credit(wanted, changed, tol), strict=True)
                 if fits for x in group]  # fmt: skip
    fewest = min((x.slips for x in made), default=0)
    return [x for x in made if x.slips <= fewest + (not rounded and x.slips == 1)]


def with_credit(trial: Trial, slip: Slip) -> Trial:
    """A candidate with the advantage of a slip.

    If the advantage only differs by the kind of std, or by a small constant added to it as frameworks do, the result
    has the options `std` and `std_constant` instead of the slip.
    """
    advantage = slip.twist.args[0]  # type: ignore[union-attr]
    keywords = getattr(advantage, "keywords", {})
    constant, std = keywords.get("constant", 0.0), next((s for s, c in STDS if c == keywords.get("correction")), "")
    same = with_std(trial.objective, std, constant) if constant <= SHIPPED and std else None
    if isinstance(trial.objective, DrGRPO):  # which is defined by having no std
        added = f", to which {constant:g} is added" if constant else ""
        words = f"the advantage is divided by the {std} std{added}"
        return trial.with_change(slip if same is None or repr_of(same) != repr_of(slip) else replace(slip, words=words))
    if same is None or repr_of(same) != repr_of(slip):
        return trial.with_change(slip)
    own = {} if trial.objective.std == std else {"std": std}  # type: ignore[attr-defined]
    more = {"std_constant": constant} if constant else {}
    return trial.with_change(same, options=trial.options | own | more)


def repr_of(slip: Slip) -> tuple[Any, Any]:
    """The function of a slip's advantage, and its keywords: two slips with equal ones are the same."""
    advantage = slip.twist.args[0]  # type: ignore[union-attr]
    return advantage.func, advantage.keywords


def same_credit(wanted: Tensor, found: list[list[Tensor]], tol: float, offset: bool = False) -> list[bool]:
    """Whether each list of advantages is a multiple of the wanted ones, up to a reduction and, perhaps, an offset."""
    rows = torch.stack([torch.cat(each) for each in found]).double().nan_to_num()
    fits = torch.zeros(len(rows), dtype=torch.bool)
    for reduction in flat()[0].factors:
        factors = torch.cat([torch.full((p.reward.numel(),), p.factors[reduction]) for p in flat()]).double()
        scaled, target = rows * factors, wanted
        if offset:
            unit = factors / factors.norm()
            scaled, target = scaled - (scaled @ unit)[:, None] * unit, target - (target @ unit) * unit
        share = (scaled @ target / (scaled**2).sum(1).clamp_min(1e-300))[:, None]
        fits |= (scaled * share - target).norm(dim=1) <= tol * wanted.norm()
    return [bool(x) for x in fits]


def pairs(bases: list[Trial], tau: float) -> Iterator[Trial]:
    """The candidates in PAIRED that have few options, with any two slips at once in their advantages or weights."""
    for base in bases:
        if base.name not in PAIRED or len(base.options) > 2 or {"baseline", "scale"} & set(base.options):
            continue
        known = [slip for slip in slips(base.objective, tau) if "temperature" not in slip.words]
        twists = [slip for slip in known if slip.twist]
        weights = [slip for slip in known if slip.rows and "micro-batch" not in slip.words]
        for i, first in enumerate(twists):
            once = base.with_change(first)
            for second in (*twists[i + 1 :], *weights):
                yield once.with_change(second)


__all__ = ["CERTIFIED", "Verdict", "assert_is", "certify"]
