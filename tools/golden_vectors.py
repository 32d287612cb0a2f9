"""The golden vectors from the papers' equations, by token in 50-digit arithmetic; nothing of pmdkit computes here.

`python tools/golden_vectors.py` writes pmdkit/testing/golden/vectors.json anew. docs/use/golden.md says what
its fields are.
"""

import json
import random
from pathlib import Path

from mpmath import exp, log, mp, mpf, sqrt

mp.dps = 50
PLACE = Path(__file__).parents[1] / "pmdkit" / "testing" / "golden" / "vectors.json"
CLIP = dict.fromkeys(("grpo", "reinforce-pp"), (mpf("0.2"), mpf("0.2"))) | {"gspo": (mpf("0.0003"), mpf("0.0004"))}
NORMS = {"gspo": "none", "qrpo": "none", "sppo": "none", "gmpo": "none", "opmd": "tokens", "rec": "tokens"} | {
    "pmd-token": "tokens",
    "pmd-score": "tokens",
}  # of an objective's own definition; the others divide by the length
RING = {"clip_mode": "ring", "clip_low": 0.1, "clip_high": 0.1, "outer_low": 0.2, "outer_high": 0.2}
DPPO = {"clip_mode": "none", "importance_sampling": True, "trust_region": "dppo-kl", "radius": 0.01}
OPEN = {"clip_low": 50.0, "clip_high": 50.0, "radius": 0.02}
TWO_TEMPERATURES = {"k": 0.2, "baseline": "mean"}
SIGNS, BITS = (-1.0, 1.0), (0.0, 1.0)
ABOUT = (
    "Losses of arXiv:2602.05933 and of its neighbours, with the factor 1/2 on regressions (but scale 'paper'). Rows "
    "are prompt-major: reward [P][G], null for a response without a verdict; tau [P]; mask, logp, logp_old "
    "[P*G][T_n], nats, a token counts where mask is 1. loss [ministeps], one number for each run of P / ministeps "
    "prompts; gradient [P*G][T_n] is d loss / d logp of the ministep that holds the row. Compute in float64; a case "
    "is passed if every entry of loss and gradient is within 1e-6. All fields: docs/use/golden.md."
)


def make():
    """Every case, computed."""
    cases = [
        case("pmd-mean", "pmd-mean", (2, 3), 4, tau=0.05),
        case("pmd-mean-one-token", "pmd-mean", (3, 4), 1, tau=0.05),
        case("pmd-mean-one-group", "pmd-mean", (1, 2), 7, tau=0.05),
        case("pmd-mean-large-tau", "pmd-mean", (2, 3), 4, tau=2.0),
        case("pmd-mean-small-tau", "pmd-mean", (2, 4), 3, tau=0.005),
        case("pmd-mean-zero-one", "pmd-mean", (3, 4), 3, tau=0.01, rewards=BITS),
        case("pmd-mean-tau-per-prompt", "pmd-mean", (3, 4), 3, tau=[0.02, 0.2, 1.0]),
        case("pmd-mean-own-mean", "pmd-mean", (2, 3), 4, tau=0.05, options={"baseline": "mean"}),
        case("pmd-mean-paper-scale", "pmd-mean", (2, 3), 4, tau=0.05, options={"scale": "paper"}),
        case("pmd-mean-sum", "pmd-mean", (2, 3), 4, tau=0.05, norm="none"),
        case("pmd-mean-budget", "pmd-mean", (2, 3), 4, tau=0.05, norm="max", length_max=9),
        case("pmd-mean-tokens", "pmd-mean", (2, 3), 4, tau=0.05, norm="tokens"),
        case("pmd-mean-unscored", "pmd-mean", (3, 4), 3, tau=0.05, unscored=((0, 1), (2, 0), (2, 2))),
        case("pmd-mean-no-peer", "pmd-mean", (2, 3), 4, tau=0.05, unscored=((1, 0), (1, 2))),
        case("pmd-mean-holes", "pmd-mean", (2, 4), 5, tau=0.05, holes=True),
        case("pmd-mean-ministeps", "pmd-mean", (4, 4), 4, tau=0.05, ministeps=2),
        case("pmd-mean-far", "pmd-mean", (2, 3), 4, tau=0.05, far=40.0),  # a log ratio clamped at 30 nats is seen
        case("pmd-mean-ministeps-per-prompt", "pmd-mean", (4, 2), 4, tau=[0.01, 0.1, 0.5, 2.0], ministeps=4),
        case("pmd-part", "pmd-part", (2, 3), 4, tau=0.5),
        case("pmd-part-one-token", "pmd-part", (3, 4), 1, tau=0.5),
        case("pmd-part-one-group", "pmd-part", (1, 2), 7, tau=0.5),
        case("pmd-part-small-tau", "pmd-part", (2, 4), 3, tau=0.001),  # e^(r / tau) overflows: a log-sum-exp is needed
        case("pmd-part-zero-one", "pmd-part", (3, 4), 3, tau=0.01, rewards=BITS),
        case("pmd-part-tau-per-prompt", "pmd-part", (3, 4), 3, tau=[0.02, 0.2, 1.0]),
        case("pmd-part-unscored", "pmd-part", (3, 4), 3, tau=0.1, unscored=((0, 1), (2, 0), (2, 2))),
        case("pmd-part-holes", "pmd-part", (2, 4), 5, tau=0.1, holes=True),
        case("pmd-part-ministeps", "pmd-part", (4, 4), 4, tau=0.1, ministeps=2),
        case("pmd-part-far", "pmd-part", (2, 3), 4, tau=0.05, far=40.0),
        case("pmd-part-own-draw", "pmd-part", (2, 3), 4, tau=0.5, options={"baseline": "mean"}),
        case("pmd-part-own-draw-small-tau", "pmd-part", (2, 4), 3, tau=0.001, options={"baseline": "mean"}),
        case("pmd-between", "pmd-between", (2, 3), 4, tau=0.5, options={"k": 0.25}),
        case("pmd-between-own-draw", "pmd-between", (2, 4), 3, tau=0.1, norm="none", options=TWO_TEMPERATURES),
        case("pmd-between-small-tau", "pmd-between", (2, 4), 3, tau=0.001, options={"k": 0.5}),
        case("pmd-between-unscored", "pmd-between", (3, 4), 3, tau=0.1, options={"k": 0.1}, unscored=((0, 1), (2, 0))),
        case("rloo", "rloo", (2, 3), 4),
        case("rloo-one-token", "rloo", (3, 4), 1),
        case("rloo-unscored", "rloo", (3, 4), 3, unscored=((0, 1), (2, 0))),
        case("grpo", "grpo", (2, 3), 4),
        case("grpo-one-token", "grpo", (3, 4), 1),
        case("grpo-holes", "grpo", (2, 4), 5, holes=True),
        case("grpo-ministeps", "grpo", (4, 4), 4, ministeps=2),
        case("grpo-far", "grpo", (2, 3), 4, far=2.5),  # a dual clip at 3 or at 10 is seen
        case("grpo-maxrl", "grpo", (2, 4), 4, rewards=BITS, options={"std": "mean"}),
        case("gspo", "gspo", (2, 3), 4),
        case("gspo-one-token", "gspo", (3, 4), 1),
        case("gspo-far", "gspo", (2, 3), 4, far=2.5),
        case("gspo-ministeps", "gspo", (4, 4), 4, ministeps=2),
        case("pmd-token", "pmd-token", (2, 3), 4, tau=0.1, options={"clip_low": 0.2, "clip_high": 0.1}),
        case("pmd-token-dppo-tv", "pmd-token", (2, 3), 4, tau=0.1, options=OPEN | {"trust_region": "dppo-tv"}),
        case("pmd-token-kpop", "pmd-token", (2, 3), 4, tau=0.1, options=OPEN | {"trust_region": "kpop"}),
        case("pmd-token-m2po", "pmd-token", (2, 3), 4, tau=0.1, options=OPEN | {"trust_region": "m2po"}),
        case("pmd-score", "pmd-score", (2, 3), 4, tau=0.2),
        case("pmd-score-one-token", "pmd-score", (3, 4), 1, tau=0.2),
        case("pmd-score-unscored", "pmd-score", (3, 4), 3, tau=0.2, unscored=((0, 1), (2, 0))),
        case("qrpo", "qrpo", (2, 4), 3, tau=0.5),
        case("qrpo-small-tau", "qrpo", (2, 4), 3, tau=0.001),  # e^(1 / tau) overflows
        case("qrpo-weak-ties", "qrpo", (2, 3), 4, tau=0.5, options={"ties": "weak"}),
        case("sppo", "sppo", (2, 4), 3, tau=0.1),
        case("opmd", "opmd", (2, 3), 4, tau=0.5, options={"baseline": "log-mean-exp"}),
        case("rec", "rec", (2, 3), 4),
        case("rec-ring", "rec", (2, 3), 4, options=RING),
        case("rec-dppo-kl", "rec", (2, 3), 4, options=DPPO),
        case("asymre", "asymre", (2, 3), 4),
        case("topr", "topr", (2, 3), 4),
        case("grpo-kl", "grpo-kl", (2, 3), 4),
        case("grpo-kl-corrected", "grpo-kl", (2, 3), 4, options={"kl_loss_type": "corrected-k3"}, far=1.0),
        case("sapo", "sapo", (2, 3), 4),
        case("sapo-unscored", "sapo", (3, 4), 3, unscored=((0, 1), (2, 0))),
        case("gmpo", "gmpo", (2, 3), 4, options={"clip_low": 0.2, "clip_high": 0.2}),
        case("bapo", "bapo", (2, 4), 4),
        case("reinforce-pp", "reinforce-pp", (2, 3), 4),
        case("reinforce-pp-group", "reinforce-pp", (3, 4), 3, options={"baseline": "group"}),
        case("reinforce-pp-ministeps", "reinforce-pp", (4, 4), 4, ministeps=2),
        case("reinforce-pp-unscored", "reinforce-pp", (3, 4), 3, unscored=((0, 1), (2, 0), (2, 2), (2, 3))),
        case(
            "reinforce-pp-group-no-peer",
            "reinforce-pp",
            (3, 3),
            3,
            options={"baseline": "group"},
            unscored=((2, 0), (2, 1)),
        ),
    ]
    return {"format": 2, "about": ABOUT, "tolerance": 1e-6, "cases": cases}


def case(
    name,
    objective,
    shape,
    width,
    tau=None,
    options=None,
    norm=None,
    length_max=None,
    rewards=SIGNS,
    unscored=(),
    holes=False,
    ministeps=1,
    far=0.0,
):
    """One objective on one random batch. The rewards of the second prompt are all equal where there is one.

    `far`: by how many nats every token moves too, up in every second response and down in the others.
    """
    prompts, size = shape
    chance = random.Random(name)
    reward = [[chance.choice(rewards) for _ in range(size)] for _ in range(prompts)]
    reward[0][0], reward[0][-1] = rewards[1], rewards[0]
    if prompts > 1:
        reward[1] = [rewards[1]] * size
    for p, g in unscored:
        reward[p][g] = None
    lengths = [chance.randint(1 + 2 * holes, width) for _ in range(prompts * size)]
    mask = [[int(not holes or t in (0, n - 1) or chance.random() < 0.6) for t in range(n)] for n in lengths]
    # the first tokens of a group are different arms: their probabilities sum to less than 1
    old = [[-chance.uniform(2.0, 3.5)] + [-chance.uniform(0.7, 3.0) for _ in range(n - 1)] for n in lengths]
    new = [[value - chance.uniform(-0.4, 0.4) for value in row] for row in old]
    new = [[x - far * (n % 2) for x in row] for n, row in enumerate(new)]
    old = [[x - far * (1 - n % 2) for x in row] for n, row in enumerate(old)]
    new = [[x if on else -40.0 for x, on in zip(*rows, strict=True)] for rows in zip(new, mask, strict=True)]
    inputs = {
        "name": name, "objective": objective, "options": options or {}, "norm": norm or NORMS.get(objective, "length"),
        "width": length_max, "ministeps": ministeps, "tau": [tau] * prompts if isinstance(tau, float) else tau,
        "reward": reward, "mask": mask, "logp": new, "logp_old": old,
    }  # fmt: skip
    credit, loss, gradient = compute(inputs)
    return inputs | {
        "advantage": [[float(value) for value in row] for row in credit],
        "loss": [float(value) for value in loss],
        "gradient": [[float(value) for value in row] for row in gradient],
        "metrics": measure(inputs, sum(rewards) / 2),
    }


def compute(case):
    """Advantage, and loss and gradient of each ministep, by the formulas of the appendix."""
    reward, size = case["reward"], len(case["reward"][0])
    prompts = len(reward) // case["ministeps"]
    lengths = [sum(row) for row in case["mask"]]
    weights = [weight(case, p, g, lengths) for p in range(len(reward)) for g in range(size)]
    credits, losses, gradient = [], [mpf(0)] * case["ministeps"], []
    for row, share in enumerate(weights):
        p, g = divmod(row, size)
        if g == 0:
            credits.append([])
        gradient.append([mpf(0)] * len(case["mask"][row]))
        credits[p].append(advantage(case, p, g) if share else mpf(0))
    for row, share in enumerate(weights):
        p, g = divmod(row, size)
        tokens = [t for t, on in enumerate(case["mask"][row]) if on]
        slopes = gradient[row]
        if not share:
            continue
        a, b = ([mpf(case[name][row][t]) for t in tokens] for name in ("logp", "logp_old"))
        value, slope = row_loss(case, p, credits[p], g, a, b)
        losses[p // prompts] += share * case["ministeps"] * value
        for t, x in zip(tokens, slope, strict=True):
            slopes[t] = share * case["ministeps"] * x
    return credits, losses, gradient


def scored(case, p):
    """The places of a group that have a verdict; none where there is only one and it needs a peer."""
    found = [g for g, r in enumerate(case["reward"][p]) if r is not None]
    return found if len(found) > 1 or over_batch(case) else []


def over_batch(case):
    """Whether a response is compared with those to all prompts."""
    return case["objective"] == "reinforce-pp" and case["options"].get("baseline") != "group"


def weight(case, p, g, lengths):
    """Of a row in the mean over all prompts: 1 / prompts / scored responses / length rule."""
    size, groups = len(case["reward"][0]), len(case["reward"])
    if g not in scored(case, p):
        return mpf(0)
    share = mpf(1) / groups / len(scored(case, p))
    if case["norm"] == "tokens":  # the mean number of tokens of a response, each prompt counting the same
        tokens = [
            mpf(lengths[q * size + h]) / groups / len(scored(case, q)) for q in range(groups) for h in scored(case, q)
        ]
        return share / sum(tokens)
    return share / {"none": 1, "length": lengths[p * size + g], "max": case["width"]}[case["norm"]]


def advantage(case, p, g):
    """Of one response among its group, or its batch."""
    if case["objective"] == "reinforce-pp":
        return of_batch(case, p, g)
    group = {h: mpf(case["reward"][p][h]) for h in scored(case, p)}
    others = [r for h, r in group.items() if h != g]
    if case["options"].get("baseline") == "mean":
        others = list(group.values())
    if case["objective"] in ("rec", "asymre", "pmd-score"):
        others = list(group.values())
    if case["objective"] in ("pmd-mean", "rloo", "pmd-token", "pmd-score", "topr", "rec", "asymre"):
        shift = mpf(1) / 10 if case["objective"] == "asymre" else mpf(0)
        return group[g] - sum(others) / len(others) + shift
    if case["objective"] == "opmd":
        tau = mpf(case["tau"][p])
        return group[g] - tau * log(sum(exp(r / tau) for r in group.values()) / len(group))
    if case["objective"] in ("qrpo", "sppo"):
        low, high = (
            mpf(sum(r < group[g] for r in others) + ties) / len(others) for ties in (0, others.count(group[g]))
        )
        if case["objective"] == "sppo":
            return (low + high - 1) / 2
        tau = mpf(case["tau"][p])
        target = high
        if case["options"].get("ties") != "weak" and high > low:
            target = tau * log(tau * (exp(high / tau) - exp(low / tau)) / (high - low))
        return target - tau * log(tau * (exp(1 / tau) - 1))
    if case["objective"] == "pmd-part":
        tau = mpf(case["tau"][p])
        return group[g] - tau * log(sum(exp(r / tau) for r in others) / len(others))
    if case["objective"] == "pmd-between":
        tau, k = mpf(case["tau"][p]), mpf(case["options"]["k"])
        return group[g] - tau / k * log(sum(exp(k * r / tau) for r in others) / len(others))
    mean = sum(group.values()) / len(group)
    spread = sqrt(sum((r - mean) ** 2 for r in group.values()) / len(group))
    if case["options"].get("std") == "mean":
        spread = max(mean, mpf(0))
    return (group[g] - mean) / spread if spread else mpf(0)


def over_prompts(case, values):
    """Mean over the prompts of the batch of the mean over the scored responses to each."""
    found = [[values(q, mpf(case["reward"][q][h])) for h in scored(case, q)] for q in range(len(case["reward"]))]
    means = [sum(group) / len(group) for group in found if group]
    return sum(means) / len(means)


def of_batch(case, p, g):
    """Advantage over the std of the whole batch, from the mean of the batch or of the group."""
    groups = [[mpf(case["reward"][q][h]) for h in scored(case, q)] for q in range(len(case["reward"]))]
    level = [sum(group) / len(group) if group else mpf(0) for group in groups]
    if over_batch(case):
        level = [over_prompts(case, lambda q, r: r)] * len(groups)
    spread = sqrt(over_prompts(case, lambda q, r: (r - level[q]) ** 2))
    return (mpf(case["reward"][p][g]) - level[p]) / spread if spread else mpf(0)


def row_loss(case, p, credits, g, a, b):
    """Loss of one response, not yet divided by its length, and its gradient by every token's log-probability."""
    name, length, credit = case["objective"], len(a), credits[g]
    s = sum(a) - sum(b)
    if name in ("pmd-mean", "pmd-part", "pmd-between", "qrpo", "sppo"):
        tau = mpf(case["tau"][p])
        rest, scale = credit - tau * s, 1 if case["options"].get("scale") == "paper" else 2
        return rest**2 / (scale * tau), [-2 * rest / scale] * length
    if name in ("rloo", "asymre", "opmd"):
        share = 1 / (1 + mpf(case["tau"][p])) if name == "opmd" else mpf(1)
        return -share * credit * sum(a), [-share * credit] * length
    if name == "topr":
        fades = credit < 0 and s < 0
        return -credit * (exp(s) - 1 if fades else s), [-credit * (exp(s) if fades else 1)] * length
    if name == "gmpo":
        high, low = (mpf(case["options"][bound]) for bound in ("clip_high", "clip_low"))
        logs = [min(x - y, high) if credit >= 0 else max(x - y, -low) for x, y in zip(a, b, strict=True)]
        gain = credit * exp(sum(logs) / length)
        return -gain, [-gain / length * (u == x - y) for u, x, y in zip(logs, a, b, strict=True)]
    if name == "pmd-score":
        tau = mpf(case["tau"][p])
        value = sum(tau / 2 * (x - y) ** 2 - credit * x for x, y in zip(a, b, strict=True))
        return value, [tau * (x - y) - credit for x, y in zip(a, b, strict=True)]
    if name in ("rec", "sapo", "grpo-kl", "pmd-token"):
        kept = tokens_kept(case, p, credits, g, a, b)
        pairs = [token_loss(case, p, credit * on, x - y) for x, y, on in zip(a, b, kept, strict=True)]
        return sum(value for value, _ in pairs), [slope for _, slope in pairs]
    low, high = balanced(case, p, credits) if name == "bapo" else CLIP[name]
    if name == "gspo":
        ratio = exp(s / length)
        value, active = clipped(ratio, credit, low, high)
        return -value, [-credit * ratio / length if active else mpf(0)] * length
    value, slope = mpf(0), []
    for x, y in zip(a, b, strict=True):
        ratio = exp(x - y)
        part, active = clipped(ratio, credit, low, high)
        value -= part
        slope.append(-credit * ratio if active else mpf(0))
    return value, slope


def drifts(case, p, credits):
    """Credit, place and the two log-probabilities of every token that counts, of the scored responses to a prompt."""
    size = len(case["reward"][0])
    for h in scored(case, p):
        row = p * size + h
        for t, on in enumerate(case["mask"][row]):
            if on:
                yield credits[h], (h, t), mpf(case["logp"][row][t]), mpf(case["logp_old"][row][t])


def tokens_kept(case, p, credits, g, a, b):
    """1 for each token of a response that keeps its gain, else 0."""
    region, radius = case["options"].get("trust_region"), mpf(case["options"].get("radius", 0))

    def kl(u, v):
        return exp(u) * (u - v) + (1 - exp(u)) * log((1 - exp(u)) / (1 - exp(v)))

    if region == "m2po":
        along = [((x - y) ** 2, at) for c, at, x, y in drifts(case, p, credits) if c * (x - y) > 0]
        while along and sum(m for m, _ in along) / len(along) > radius:
            along.remove(max(along))
        left = {at for _, at in along}
        places = [at for _, at, _, _ in drifts(case, p, credits) if at[0] == g]
        return [int(at in left or credits[g] * (x - y) <= 0) for at, x, y in zip(places, a, b, strict=True)]
    kept = []
    for x, y in zip(a, b, strict=True):
        along = credits[g] * (x - y) > 0
        kept.append(
            {
                None: True,
                "dppo-tv": not (along and abs(exp(x) - exp(y)) > radius),
                "dppo-kl": not (along and kl(y, x) > radius),
                "kpop": max(kl(x, y), kl(y, x)) <= radius,
            }[region]
        )
    return [int(on) for on in kept]


def balanced(case, p, credits):
    """BAPO's bounds for a prompt, as distances from 1: the first pair that balances it, or the last."""
    low, high, step = mpf("0.4"), mpf("0.2"), mpf("0.05")
    while True:
        parts = [(c, exp(x - y)) for c, _, x, y in drifts(case, p, credits)]
        up = sum(c * min(ratio, 1 + high) for c, ratio in parts if c > 0)
        down = sum(-c * max(ratio, 1 - low) for c, ratio in parts if c < 0)
        if up >= down or (low <= mpf("0.2") and high >= 1):
            return low, high
        if low > mpf("0.2"):
            low = max(low - step, mpf("0.2"))
        else:
            high = min(high + step, mpf(1))


def token_loss(case, p, credit, s):
    """Loss of one token at log ratio s, and its derivative."""
    name, options, ratio = case["objective"], case["options"], exp(s)
    if name == "sapo":
        steep = mpf(1) if credit > 0 else mpf("1.05")
        gate = 1 / (1 + exp(-steep * (ratio - 1)))
        return -credit * 4 / steep * gate, -credit * 4 * gate * (1 - gate) * ratio
    if name == "pmd-token":
        tau = mpf(case["tau"][p])
        inside = -mpf(options["clip_low"]) <= s <= mpf(options["clip_high"])
        bounded = min(max(s, -mpf(options["clip_low"])), mpf(options["clip_high"]))
        return tau / 2 * s**2 - credit * exp(bounded), tau * s - credit * ratio * inside
    if name == "grpo-kl":  # the anchor is pi_old where no reference is given
        part, active = clipped(ratio, credit, *CLIP["grpo"])
        beta = mpf("0.04")
        if options.get("kl_loss_type") == "corrected-k3":  # ratio (1 / ratio - 1 + s)
            return beta * (1 - ratio + ratio * s) - part, beta * ratio * s - credit * ratio * active
        return beta * (1 / ratio - 1 + s) - part, beta * (1 - 1 / ratio) - credit * ratio * active
    if options.get("clip_mode") == "none":
        return -credit * ratio, -credit * ratio
    low, high = (mpf(options.get(name, "0.2")) for name in ("clip_low", "clip_high"))
    low, high = log(1 - low), log(1 + high)
    if not options:  # one side
        bounded = min(s, high) if credit >= 0 else max(s, low)
        return -credit * bounded, -credit * (bounded == s)
    outer = log(1 - mpf(options["outer_low"])) if credit >= 0 else log(1 + mpf(options["outer_high"]))
    beyond = min(s - outer, mpf(0)) if credit >= 0 else max(s - outer, mpf(0))
    return -credit * (min(max(s, low), high) + beyond), -credit * (low <= s <= high or beyond != 0)


def clipped(ratio, credit, low, high):
    """min(ratio A, clip(ratio) A), and whether the ratio itself is the smaller."""
    bounded = min(max(ratio, 1 - low), 1 + high)
    return min(ratio * credit, bounded * credit), ratio * credit <= bounded * credit


def measure(case, passed):
    """What pmdkit logs of such a batch: over the responses with a verdict; a rate is first taken within each prompt."""
    reward, size = case["reward"], len(case["reward"][0])
    groups = [[mpf(r) for r in group if r is not None] for group in reward]
    groups = [group for group in groups if group]
    change = [
        sum(mpf(x) - mpf(y) for x, y, on in zip(*rows, strict=True) if on)
        for row, rows in enumerate(zip(case["logp"], case["logp_old"], case["mask"], strict=True))
        if reward[row // size][row % size] is not None
    ]
    return {
        "reward_mean": float(sum(sum(group) / len(group) for group in groups) / len(groups)),
        "pass_rate": float(sum(mpf(sum(r > passed for r in group)) / len(group) for group in groups) / len(groups)),
        "log_ratio_min": float(min(change)),
        "log_ratio_max": float(max(change)),
        "zero_variance_groups": sum(len(set(group)) == 1 for group in groups),
        "unscored": sum(r is None for group in reward for r in group),
    }


def text(vectors):
    """JSON with every field of a case on a line of its own."""
    head = {name: value for name, value in vectors.items() if name != "cases"}
    lines = [" " + json.dumps(name) + ": " + json.dumps(value) + "," for name, value in head.items()]
    blocks = [
        "  {\n" + ",\n".join(f"   {json.dumps(key)}: {json.dumps(value)}" for key, value in case.items()) + "\n  }"
        for case in vectors["cases"]
    ]
    return "{\n" + "\n".join(lines) + '\n "cases": [\n' + ",\n".join(blocks) + "\n ]\n}\n"


if __name__ == "__main__":
    PLACE.write_text(text(make()), encoding="utf-8")
    print(PLACE)
