"""An explanation in words: what is solved, what follows, and caveats. Every sentence follows from a number."""

from dataclasses import asdict
from typing import Any

import numpy as np

from pmdkit_lab.explain.explanation import Explanation
from pmdkit_lab.explain.regulariser import RATIOS
from pmdkit_lab.explain.tabular import GRADED_PROMPTS, LONG, REWARDS
from pmdkit_lab.json_values import plain

TERMS = {  # of f': its name, the divergence, the weight of that in a weight of f', and f' itself
    "kl": ("KL", "{} KL(pi||pi_old)", 1.0, "{} log z"),
    "chi2": ("chi2", "{} chi2(pi||pi_old)", 0.5, "{} (z - 1)"),
    "reverse_kl": ("reverse KL", "{} KL(pi_old||pi)", 1.0, "{} (1 - 1/z)"),
}


def to_json(e: Explanation) -> dict[str, Any]:
    """Everything as JSON values: arrays as lists, NaN as null."""
    derived = {
        "name": e.name,
        "kind": e.kind,
        "regulariser": e.regulariser,
        "ratio_only": e.ratio_only,
        "spread": e.spread,
        "solutions": {name: rest.to_json(GRADED_PROMPTS[name]) for name, rest in e.rests.items()},
        "unique": e.unique,
        "reward_effect": e.reward_effect,
        "headline": headline(e),
        "certificate": certificate(e),
        "solves": solves(e),
        "facts": facts(e),
        "caveats": caveats(e),
        "ratios": RATIOS,
        "eta": dict(zip((f"{p:g}" for p in e.steps.p), e.steps.eta.tolist(), strict=True)),
    }
    value: dict[str, Any] = plain(derived | {k: v for k, v in asdict(e).items() if k not in derived})
    return value


def headline(e: Explanation) -> str:
    """One line: what the objective solves, or that it is not settled."""
    if e.kind == "not settled":
        return f"not settled: {next(rest.certificate.why for rest in e.rests.values() if not rest.is_settled)}"
    effects = {"lowers": "; it lowers the reward", "depends": "; it raises the reward at some prompts only"}
    if e.kind in ("plateau", "unbounded") and e.reward_effect == "leaves":
        effects["leaves"] = "; its first step leaves the reward where it is"
    if e.kind in ("plateau", "unbounded") and e.reward_effect == "lowers":
        effects["lowers"] = "; its first step lowers the reward"
    field = "" if e.integrable else "by its gradient, which is not that of its value: "
    return field + solution(e) + effects.get(e.reward_effect, "")


def solution(e: Explanation) -> str:
    """The core of the headline: the problem that the objective solves."""
    kinks = max(len(rest.certificate.kinks) for rest in e.rests.values())
    if e.kind != "minimiser":
        limit = "one limit" if e.unique else "many limits"
        return {
            "plateau": "no single minimiser: a plateau. Many policies share the smallest loss, and nothing pulls back",
            "boundary": f"no minimiser inside the simplex, but {limit}: it goes on until {survivors(e)}",
            "unbounded": "no minimiser: the loss falls for ever",
            "constant": "nothing: no gradient moves any policy",
            "depends": "a minimiser at some prompts and none at others",
        }[e.kind]
    if all(np.abs(rest.log_ratio).max() < 1e-6 for rest in e.rests.values()):
        return "pi_old itself: at the prompts asked, whatever the rewards, the best policy is the old one"
    if kinks:
        return f"one minimiser inside the simplex; up to {kinks} of 8 responses rest at a kink, so there is no one f"
    read = all(curve.defined for curve in e.curves.values())
    known = [np.isfinite(curve.slope) for curve in e.curves.values()]
    if len(known) == len(e.rests) and all(each.any() for each in known) and not read:
        return "one minimiser inside the simplex; at some ratios no reward brings a response to rest: f' has gaps"
    if not read or e.direction == 0:
        return "one minimiser inside the simplex, but no regulariser: no rising f' takes rewards to ratios"
    aim = "max E_pi[r] - " if e.direction > 0 else "min E_pi[r] + "
    if e.ratio_only and e.regulariser != "other":
        return f"one fixed problem: {aim}{penalty(first_weights(e), e.direction)}"
    if e.regulariser in ("kl + chi2", "chi2"):
        fixed = [term for term in first_weights(e) if close([curve.weights[term] for curve in e.curves.values()])]
        moving = " and ".join(TERMS[term][0] for term in first_weights(e) if term not in fixed)
        what = f"the weight of {moving} differs" if fixed else "weights that differ"
        return f"{aim}{varying(e, e.direction)}: {what} from prompt to prompt"
    if e.ratio_only:
        return f"one fixed problem, {aim}E_old[f(ratio)], with an f of its own: neither KL nor chi2 nor a mix"
    if design(e) and e.direction > 0:
        return f"{aim}{penalty(design(e))} - a term that normalisation adds, other at every prompt"
    return "there is one minimiser, but no fixed regulariser: f' differs from prompt to prompt"


def certificate(e: Explanation) -> str:
    """The evidence for the headline, at the three graded problems."""
    rests = list(e.rests.values())
    why = [rest.certificate for rest in rests]
    if e.kind == "not settled":
        return "no certificate: " + "; ".join(each.why for each in why if each.why)
    proofs = " and ".join(sorted({each.proof for each in why}))
    if e.kind == "constant":
        return "certificate: the gradient by the logits is 0 at 129 policies of each problem"
    if e.kind == "unbounded":
        slopes = ", ".join(f"{rest.slope:.2g}" for rest in rests)
        return f"certificate: {proofs}; the loss still changes by {slopes} per nat, far out"
    numbers = [f"stationarity {max(each.residual for each in why):.0e}"]
    bend = min(each.curvature for each in why)
    if e.kind == "minimiser":
        numbers.append("kinks alone" if np.isinf(bend) else f"curvature at least {bend:.2g}")
    if any(each.kinks for each in why):
        numbers.append(f"{max(len(each.kinks) for each in why)} of 8 at a kink (subgradient)")
    rivals = [each.rivals for each in why]
    if e.kind in ("minimiser", "boundary"):
        known = [each for each in rivals if each is not None]
        others = "not looked for" if len(known) < len(rivals) else str(max(known)) if max(known) else "none"
        numbers.append(f"smallest by {proofs}, other resting points: {others}")
    else:
        numbers.append(f"smallest by {proofs}")
    return f"certificate: {'; '.join(numbers)}"


def survivors(e: Explanation) -> str:
    """How many responses of the first graded problem keep any probability under many small steps."""
    rest = e.rests["graded rewards"]
    left = int(np.isfinite(rest.log_ratio).sum()) if rest.kind == "boundary" else 1
    if left == 1:
        return "one response has all the probability"
    return f"only {left} of 8 graded responses have any probability left"


def solves(e: Explanation) -> list[str]:
    """The problem that the objective solves, in a few sentences."""
    rest = e.rests["graded rewards"]
    if e.kind == "minimiser":
        return regularised(e)
    if e.kind == "constant":
        return ["At every policy the gradient by the logits is 0, so a run stays where it is. No f."]
    if e.kind == "not settled":
        words = (
            f"{name}: {each.certificate.why if not each.is_settled else each.kind}" for name, each in e.rests.items()
        )
        return [f"{'; '.join(words)}. What follows is of the first steps alone."]
    lines = []
    if e.kind == "plateau":
        lines.append(
            "There is no one reward-to-ratio map, so no f: many policies have the smallest loss, and no gradient. "
            "Where a run stops depends on its path and its optimizer, not on the loss."
        )
    elif e.kind == "unbounded":
        what = "the loss" if e.integrable else "what the gradient descends"
        lines.append(
            f"Far out {what} still falls by {-rest.slope:.3g} "
            "per nat along one direction of the logits: only the number of steps and the learning rate hold the policy "
            "back. No f."
        )
    elif e.kind == "boundary":
        lines.append(
            "No resting point with all probabilities above 0, so no f to read off. (A regulariser whose slope at ratio "
            "0 is finite, such as chi2 alone, also ends like this.)"
        )
    else:
        lines.append(", ".join(f"{name}: {each.kind}" for name, each in e.rests.items()) + ". Where there is one:")
        lines += regularised(e) if e.curves else []
    if rest.kind == "boundary":
        kept = ", ".join(f"{ratio:.3g}" for ratio in np.exp(rest.log_ratio) if ratio > 0)
        lines.append(f"On the first graded problem the limit has ratios {kept}, and 0 for all other responses.")
    return lines


def regularised(e: Explanation) -> list[str]:
    """The regulariser, and which part of it normalisation adds."""
    if any(rest.certificate.kinks for rest in e.rests.values()):
        why = "At a kink a response rests for a whole range of rewards, so there is no one reward for a ratio."
        return [why, best_ratios(e, ".5g")]
    curves = list(e.curves.values())
    if not curves or not all(curve.defined for curve in curves):
        return ["There is no map from every reward to one ratio, and no f."]
    lines = []
    if e.direction == 0:
        lines.append("f' does not rise with the ratio throughout: it is the slope of no regulariser.")
    multipliers = [abs(rest.multiplier) for rest in e.rests.values()]
    if e.regulariser != "other":
        where = "" if e.ratio_only else " on the first graded problem"
        lines.append(
            f"f'(z) = {derivative(first_weights(e))}, z = pi/pi_old{where}  (misfit {curves[0].misfit:.0e} of f')"
        )
    else:
        lines.append(
            f"No mix of KL, chi2 and reverse KL gives f': the nearest misses by {100 * curves[0].misfit:.2g} %."
        )
    if np.isfinite(e.spread) and not e.ratio_only:
        lines.append(
            f"The same ratio costs another reward at another prompt: f' differs by up to {100 * e.spread:.2g} %."
        )
    if design(e) and max(multipliers) > 1e-9 and np.isfinite(e.spread) and not e.ratio_only:
        lines.append(
            f"Written for f' = {derivative(design(e))}; its targets do not sum to a policy, and the rest of f' is what "
            "making them one costs."
        )
    elif max(multipliers) < 1e-9:
        lines.append("Its targets already sum to a policy, so normalisation adds nothing.")
    if any(np.isfinite(known.recovered) for known in e.theory.values()):
        lines.append(
            "The chi2 weight is lambda/(2 tau), the KL weight tau of Theorem 1 and Proposition mixed_subproblem."
        )
    return [*lines, best_ratios(e, ".3g")] if "graded rewards" in e.curves else lines


def best_ratios(e: Explanation, form: str) -> str:
    """The ratio of each reward on the first graded problem."""
    pairs = zip(REWARDS, np.exp(e.rests["graded rewards"].log_ratio), strict=True)
    return f"Reward: ratio on the first graded problem is {', '.join(f'{r:g}: {z:{form}}' for r, z in pairs)}."


def facts(e: Explanation) -> list[str]:
    """What a student can take away, one sentence each."""
    return [first(e), passing(e), pushing(e), stretching(e)]


def first(e: Explanation) -> str:
    """The first step."""
    if e.first.factor == 0 and e.first.misfit == 0:
        return "First step: none, the gradient at pi_old is 0."
    if e.first.misfit > 1e-6:
        turn = "" if e.first.factor > 0 else ", and it does not raise the reward"
        return f"First step: not a multiple of the policy gradient ({e.first.misfit:.1%} of it points elsewhere){turn}."
    rates = dict(e.first.by_pass_rate)
    values = list(rates.values())
    lowers = ": it lowers the reward" if max(values) < 0 else ""
    if np.ptp(values) < 1e-6 * np.abs(values).max():
        if abs(values[0] - 1) < 1e-6:
            return "First step: the plain policy gradient, at every pass rate; tau and clip bounds do not enter it."
        return f"First step: {values[0]:.3g} times the policy gradient, at every pass rate{lowers}."
    factors = ", ".join(f"{value:.3g} at p = {p:g}" for p, value in rates.items())
    loud = np.abs(values)
    if min(loud[0], loud[-1]) > max(loud[1:-1]):
        lowers += ": loudest where a group is nearly all right or all wrong"
    return f"First step: the policy gradient times {factors}{lowers}."


def passing(e: Explanation) -> str:
    """How the exact step depends on the pass rate."""
    factors = [factor for _, factor in e.first.by_pass_rate]
    if max(factors) <= 0:
        return f"Pass rate: no first step {'raises it' if min(factors) < 0 else 'moves it'}."
    eta = e.steps.eta
    shares = ", ".join(
        f"{share(x)} at p = {p:g}" for p, x, rests in zip(e.steps.p, eta, e.steps.rests, strict=True) if rests
    )
    if not e.steps.rests.any():
        return "Pass rate: a prompt never comes to rest before p = 1, whatever its pass rate."
    if not e.steps.rests.all():
        stuck = ", ".join(f"{p:g}" for p in e.steps.p[~e.steps.rests])
        return f"Pass rate: eta is {shares}; at p = {stuck} it never comes to rest before p = 1."
    if eta[-1] > eta[0] * 1.05:
        return (
            f"Pass rate: hard prompts move least; an exact step closes {eta[0]:.1%} of the gap at p = {e.steps.p[0]:g}."
        )
    return f"Pass rate: the share of the gap that one exact step closes hardly depends on it: {shares}."


def share(eta: float) -> str:
    """A share as text; close to 1, as 1 minus what is missing."""
    return f"{eta:.3g}" if eta < 0.9995 or eta == 1 else f"1 - {1 - eta:.0e}"


def pushing(e: Explanation) -> str:
    """The log ratio at which a push ends, and the gradient beyond it."""
    force = e.force
    ends = []
    for name, end, back, push, sign in (
        ("right", force.right_end, force.right_back, force.right, 1),
        ("wrong", force.wrong_end, force.wrong_back, force.wrong, -1),
    ):
        if push == 0:
            ends.append(f"a {name} one is not pushed at ratio 1")
        elif sign * push < 0:
            ends.append(f"a {name} one is pushed {'down' if sign > 0 else 'up'}")
        elif np.isnan(end):
            ends.append(f"a {name} response is pushed without end")
        elif back:
            ends.append(f"a {name} one is pushed to {end:+.3g} nats, and pulled back from beyond")
        else:
            ends.append(f"a {name} one is pushed to ratio {np.exp(end):.5g}, and left alone beyond")
    return f"Push at p = 0.1: {'; '.join(ends)}."


def stretching(e: Explanation) -> str:
    """The effect of the lengths of responses."""
    token = e.first.token
    if np.isnan(token):
        return "Length: the first step is the same for right and wrong responses, so it tells nothing of their length."
    rule = (
        "a token counts the same in long and short responses"
        if abs(token - 1) < 1e-6
        else f"a token of a response {LONG} times as long counts {token:.3g} times as much"
    )
    if e.lengths is None:
        return f"Length: {rule}."
    if abs(e.lengths.short_over_long - 1) < 1e-6:
        return f"Length: {rule} at first; the solution does not look at it."
    cost = ""
    if "chi2" in e.lengths.short and "chi2" in e.lengths.long:
        factor = e.lengths.long["chi2"] / e.lengths.short["chi2"]
        cost = f"; chi2 costs {factor:.3g} times as much at {LONG} tokens"
    return (
        f"Length: {rule}{cost}, so at equal reward 1 a response of 1 token ends with "
        f"{e.lengths.short_over_long:.3g} times the ratio of one of {LONG}."
    )


def caveats(e: Explanation) -> list[str]:
    """Limits of these results, a sentence each."""
    notes = []
    if not e.integrable:
        notes.append(
            "A factor is held back from differentiation, or the loss jumps: its value is not what its gradient "
            "descends, and the gradient alone was asked."
        )
    if e.level == "token":
        notes.append(
            "It is a loss of tokens: a response of several is asked with its log ratio spread evenly over them."
        )
    if e.reference:
        notes.append("It uses a reference policy; here pi_ref = pi_old. With another one it is pulled there instead.")
    if e.whole_batch:
        notes.append(
            "Its advantage depends on the other prompts of a batch; here every prompt is a batch of its own. Among "
            "several, the rewards of each change the advantages of all."
        )
    if np.isnan(e.tau) and "tau" in e.options:
        notes.append("tau is a rule: lambda and eta are at the temperature that it gives each prompt.")
    wrong = [name for name, theory in e.theory.items() if not theory.error < 1e-6]
    if wrong:
        notes.append(
            f"It claims the solution theory.{e.theory[wrong[0]].solution}, and rests elsewhere "
            f"({e.theory[wrong[0]].error:.2g} nats away on {wrong[0]}): its trait `population` is wrong here."
        )
    if e.kind == "plateau" and np.isfinite(e.force.right_end):
        most = float(np.exp(-e.force.right_end))
        notes.append(
            f"At pass rates above {most:.4g} not all right responses can reach the upper bound: no plateau there."
        )
    notes.append("Tables and exact expectations: draws, shared weights and a few gradient steps do less.")
    return notes


def design(e: Explanation) -> dict[str, float]:
    """The weights that the loss was written for; {} if no mix fits."""
    designs = [curve.design for curve in e.curves.values()]
    same = designs and all(d.keys() == designs[0].keys() for d in designs)
    return designs[0] if same and all(close([d[k] for d in designs]) for k in designs[0]) else {}


def first_weights(e: Explanation) -> dict[str, float]:
    """The weights of f' on the first graded problem."""
    return next(iter(e.curves.values())).weights


def close(values: list[float]) -> bool:
    """Whether all numbers are equal up to rounding."""
    return bool(np.ptp(values) <= 1e-6 * np.abs(values).max())


def penalty(weights: dict[str, float], sign: int = 1) -> str:
    """`0.05 KL(pi||pi_old) - ...`; for a minimum (sign -1) `0.05 KL(pi||pi_old) + ...`."""
    parts = [TERMS[term][1].format(f"{sign * weight * TERMS[term][2]:.4g}") for term, weight in weights.items()]
    return " - ".join(parts).replace("- -", "+ ") if sign > 0 else " + ".join(parts).replace("+ -", "- ")


def varying(e: Explanation, sign: int = 1) -> str:
    """Like `penalty`, but with a range where a weight differs between the problems."""
    parts = []
    for term in first_weights(e):
        values = [sign * curve.weights[term] * TERMS[term][2] for curve in e.curves.values()]
        low, high = min(values), max(values)
        parts.append(TERMS[term][1].format(f"{low:.3g}" if close(values) else f"[{low:.3g}..{high:.3g}]"))
    return (" - " if sign > 0 else " + ").join(parts)


def derivative(weights: dict[str, float]) -> str:
    """`0.05 log z + 0.11 (z - 1)`."""
    return " + ".join(TERMS[term][3].format(f"{weight:.6g}") for term, weight in weights.items()).replace("+ -", "- ")
