"""The golden vectors from the paper's appendix, token by token in 50-digit arithmetic; nothing of pmdkit computes here.

`python tests/testing/golden_reference.py` writes pmdkit/testing/golden/vectors.json anew.
"""

import json
import random
from pathlib import Path

from mpmath import exp, log, mp, mpf, sqrt

mp.dps = 50
PLACE = Path(__file__).parents[2] / "pmdkit" / "testing" / "golden" / "vectors.json"
CLIP = {"grpo": (mpf("0.2"), mpf("0.2")), "gspo": (mpf("0.0003"), mpf("0.0004"))}
ABOUT = (
    "Losses of arXiv:2602.05933 with the factor 1/2 on regressions. Rows are prompt-major: reward [P][G]; logp and "
    "logp_old [P*G][T_n], nats, tokens of the response only. loss is the mean over prompts and responses, each divided "
    "by its length where norm is 'length'; gradient is d loss / d logp [P*G][T_n]. An implementation passes a case if "
    "loss and gradient agree to 1e-6."
)


def make():
    """Every case, computed."""
    cases = []
    for name, options in (
        ("pmd-mean", {"tau": 0.05}),
        ("pmd-mean", {"tau": 2.0}),
        ("pmd-part", {"tau": 0.5}),
        ("rloo", {}),
        ("grpo", {}),
        ("gspo", {}),
    ):
        for shape, width in (((2, 3), 4), ((3, 4), 1), ((1, 2), 7)):
            cases.append(case(name, options, shape, width, seed=len(cases)))
    return {"format": 1, "about": ABOUT, "cases": cases}


def case(name, options, shape, width, seed):
    """One objective on one random batch; the second prompt's rewards are all equal where there is one."""
    prompts, size = shape
    chance = random.Random(seed)
    reward = [[chance.choice((-1.0, 1.0)) for _ in range(size)] for _ in range(prompts)]
    reward[0][0], reward[0][-1] = 1.0, -1.0
    if prompts > 1:
        reward[1] = [1.0] * size
    old = [
        [-chance.uniform(0.7, 3.0) - 1.5 * (width == 1) for _ in range(chance.randint(1, width))]
        for _ in range(prompts * size)
    ]
    new = [[value - chance.uniform(-0.4, 0.4) for value in row] for row in old]
    loss, gradient = compute(name, options, reward, new, old)
    return {
        "objective": name,
        "options": options,
        "norm": "none" if name == "gspo" else "length",
        "reward": reward,
        "logp": new,
        "logp_old": old,
        "loss": float(loss),
        "gradient": [[float(value) for value in row] for row in gradient],
    }


def compute(name, options, reward, new, old):
    """Loss and gradient by the formulas of the appendix."""
    prompts, size = len(reward), len(reward[0])
    loss, gradient = mpf(0), []
    for p in range(prompts):
        for g in range(size):
            row = p * size + g
            a, b = [mpf(x) for x in new[row]], [mpf(x) for x in old[row]]
            credit = advantage(name, options, [mpf(r) for r in reward[p]], g)
            value, slope = row_loss(name, options, credit, a, b)
            loss += value / (prompts * size)
            gradient.append([x / (prompts * size) for x in slope])
    return loss, gradient


def advantage(name, options, reward, g):
    """Of one response among its group."""
    others = reward[:g] + reward[g + 1 :]
    if name in ("pmd-mean", "rloo"):
        return reward[g] - sum(others) / len(others)
    if name == "pmd-part":
        tau = mpf(options["tau"])
        return reward[g] - tau * log(sum(exp(r / tau) for r in others) / len(others))
    mean = sum(reward) / len(reward)
    spread = sqrt(sum((r - mean) ** 2 for r in reward) / len(reward))
    return (reward[g] - mean) / spread if spread else mpf(0)


def row_loss(name, options, credit, a, b):
    """Loss of one response and its gradient by every token's log-probability."""
    length = len(a)
    s = sum(a) - sum(b)
    if name.startswith("pmd"):
        tau = mpf(options["tau"])
        rest = credit - tau * s
        return rest**2 / (2 * tau) / length, [-rest / length] * length
    if name == "rloo":
        return -credit * sum(a) / length, [-credit / length] * length
    low, high = CLIP[name]
    if name == "gspo":
        ratio = exp(s / length)
        value, active = clipped(ratio, credit, low, high)
        return -value, [-credit * ratio / length if active else mpf(0)] * length
    value, slope = mpf(0), []
    for x, y in zip(a, b, strict=True):
        ratio = exp(x - y)
        part, active = clipped(ratio, credit, low, high)
        value -= part / length
        slope.append(-credit * ratio / length if active else mpf(0))
    return value, slope


def clipped(ratio, credit, low, high):
    """min(ratio A, clip(ratio) A), and whether the ratio itself is the smaller."""
    bounded = min(max(ratio, 1 - low), 1 + high)
    return min(ratio * credit, bounded * credit), ratio * credit <= bounded * credit


if __name__ == "__main__":
    PLACE.write_text(json.dumps(make(), indent=1) + "\n", encoding="utf-8")
    print(PLACE)
