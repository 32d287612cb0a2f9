"""Wrong answers of the kind that learners give, and what is wrong with them; older than the judge's general layer.

The sha256 of this file stood in the repository before that layer did, so no answer was added, dropped or bent for it.
One person wrote both: this is a set that was fixed first, and not one from a class.

A row is (exercise, kinds, answer). Kinds are the general names that would be true of the answer: sign, inverse,
order, off-by-one, square, axis, edge, rounding, form, base, factor, aggregate. `concept` has no general name: only a
named slip of the exercise can be right about it.
"""

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import logsumexp
from scipy.stats import binom, norm
from scipy.stats import t as student

from pmdkit import theory


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def kl(new, old):
    kept = new > 0
    return new[kept] @ np.log(new[kept] / old[kept])


def newton_lambda(pi, reward, tau, baseline=None, squared=True):
    target = (reward - (pi @ reward if baseline is None else baseline)) / tau

    def excess(lam):
        strength = lam / tau**2 if squared else lam / tau
        u = target.copy()
        for _ in range(200):
            u -= (u + strength * np.exp(u) - target) / (1 + strength * np.exp(u))
        return pi @ np.exp(u) - 1

    return brentq(excess, 1e-12, 1e4)


def loo(reward):
    n = reward.shape[1]
    return reward - (reward.sum(1, keepdims=True) - reward) / (n - 1)


def loop_of_groups(reward):
    """All groups but the last: the range ends one early."""
    found = np.zeros_like(reward)
    for i in range(len(reward) - 1):
        found[i] = loo(reward[i : i + 1])[0]
    return found


def shared_axis(logp, logp_old, mask):
    mask = np.asarray(mask)
    difference = np.where(mask, np.asarray(logp) - np.asarray(logp_old), 0.0)
    return difference, mask


def summed(logp, logp_old, mask):
    difference, mask = shared_axis(logp, logp_old, mask)
    return difference.sum(1), mask.sum(1), len(mask)


def dot(one, other):
    return sum(float((a * b).sum()) for a, b in zip(one, other, strict=True))


def interval(first, second, quantile, ddof=1):
    d = second - first
    half = quantile(len(d)) * d.std(ddof=ddof) / np.sqrt(len(d))
    return d.mean() - half, d.mean() + half


def t975(n):
    return student.ppf(0.975, n - 1)


def best(step):
    return lambda work, floor, update, gpus: min(range(1, gpus), key=lambda n: step(work, floor, update, gpus, n))


def odds(p):
    return np.log(p / (1 - p))


ANSWERS = [
    # 100.1
    ("100.1", "concept", lambda pi, reward: pi * (reward - reward.max())),
    ("100.1", "sign", lambda pi, reward: pi * (pi @ reward - reward)),
    ("100.1", "concept", lambda pi, reward: (reward - pi @ reward) / pi),
    ("100.1", "concept", lambda pi, reward: pi * (reward - pi * reward)),
    ("100.1", "aggregate form", lambda pi, reward: (pi * (reward - pi @ reward)).sum()),
    ("100.1", "concept", lambda pi, reward: softmax(reward) - pi),
    # 100.2
    ("100.2", "order", lambda new, pi: (np.log(new[new > 0] / pi[new > 0]).max(), kl(new, pi))),
    ("100.2", "base", lambda new, pi: (kl(new, pi) / np.log(10), np.log10(new[new > 0] / pi[new > 0]).max())),
    ("100.2", "base", lambda new, pi: (kl(new, pi) / np.log(2), np.log(new[new > 0] / pi[new > 0]).max())),
    ("100.2", "sign", lambda new, pi: (-kl(new, pi), np.log(new[new > 0] / pi[new > 0]).max())),
    ("100.2", "concept", lambda new, pi: (kl(new, pi), np.abs(np.log(new[new > 0] / pi[new > 0])).max())),
    (
        "100.2",
        "aggregate",
        lambda new, pi: (np.mean(np.log(new[new > 0] / pi[new > 0])), np.log(new[new > 0] / pi[new > 0]).max()),
    ),
    # 100.3
    ("100.3", "order", lambda pi, reward, tau: (tau * np.log(pi @ np.exp(reward / tau)), pi @ reward)),
    ("100.3", "concept", lambda pi, reward, tau: (pi @ reward, np.log(pi @ np.exp(reward)))),
    ("100.3", "base", lambda pi, reward, tau: (pi @ reward, tau * np.log2(pi @ np.exp(reward / tau)))),
    ("100.3", "concept", lambda pi, reward, tau: (pi @ reward, tau * (pi @ np.log(np.exp(reward / tau))))),
    ("100.3", "sign", lambda pi, reward, tau: (pi @ reward, -tau * np.log(pi @ np.exp(reward / tau)))),
    # 100.4
    (
        "100.4",
        "sign inverse concept",
        lambda pi, reward, tau: pi * np.exp(-reward / tau) / (pi @ np.exp(-reward / tau)),
    ),
    ("100.4", "concept", lambda pi, reward, tau: softmax(np.log(pi) + tau * reward)),
    ("100.4", "concept", lambda pi, reward, tau: softmax(pi + reward / tau)),
    ("100.4", "concept", lambda pi, reward, tau: softmax(np.log(pi) + reward)),
    # 101.1
    ("101.1", "concept", lambda pi, reward: pi * reward / (pi @ reward)),
    (
        "101.1",
        "concept",
        lambda pi, reward: pi * np.maximum(reward - reward.mean(), 0) / (pi @ np.maximum(reward - reward.mean(), 0)),
    ),
    ("101.1", "concept", lambda pi, reward: (lambda g: g / g.sum())(np.where(reward > pi @ reward, reward, 0))),
    ("101.1", "square", lambda pi, reward: (lambda g: pi * g**2 / (pi @ g**2))(np.maximum(reward - pi @ reward, 0))),
    # 101.2
    (
        "101.2",
        "order",
        lambda new, old: (np.exp(logsumexp(2 * new - old)) - 1, np.exp(new) @ np.where(new > -np.inf, new - old, 0)),
    ),
    (
        "101.2",
        "sign",
        lambda new, old: (
            np.exp(new) @ np.where(new > -np.inf, old - np.maximum(new, -1e300), 0),
            np.exp(logsumexp(2 * new - old)) - 1,
        ),
    ),
    (
        "101.2",
        "concept",
        lambda new, old: (np.exp(new) @ np.where(new > -np.inf, new - old, 0), logsumexp(2 * new - old)),
    ),
    (
        "101.2",
        "square",
        lambda new, old: (
            np.exp(new) @ np.where(new > -np.inf, new - old, 0),
            np.sqrt(max(np.exp(logsumexp(2 * new - old)) - 1, 0)),
        ),
    ),
    # 101.3
    (
        "101.3",
        "factor",
        lambda pi, reward, budget: (
            2
            * math.exp(
                brentq(
                    lambda x: theory.kl(theory.pmd_part(pi, reward, math.exp(x)).probs, pi) - budget,
                    math.log(1e-3),
                    math.log(1e4),
                )
            )
        ),
    ),
    (
        "101.3",
        "rounding",
        lambda pi, reward, budget: min(
            np.geomspace(1e-3, 1e3, 200),
            key=lambda tau: abs(theory.kl(theory.pmd_part(pi, reward, tau).probs, pi) - budget),
        ),
    ),
    ("101.3", "concept", lambda pi, reward, budget: reward.std() / np.sqrt(2 * budget)),
    # 102.1
    (
        "102.1",
        "off-by-one",
        lambda p0, tau, goal: int(np.argmax(theory.trajectory(p0, tau / 2, 100, "pmd-mean") > goal)) - 1,
    ),
    (
        "102.1",
        "off-by-one",
        lambda p0, tau, goal: len([p for p in theory.trajectory(p0, tau / 2, 100, "pmd-mean") if p <= goal]) + 1,
    ),
    ("102.1", "concept", lambda p0, tau, goal: int(np.argmax(theory.trajectory(p0, tau / 4, 100, "pmd-mean") > goal))),
    ("102.1", "concept", lambda p0, tau, goal: 5),
    # 102.2
    (
        "102.2",
        "sign",
        lambda reward, mass, tau: (
            -(lambda x: x.max() + np.log(mass[mass > 0] @ np.exp(x - x.max())))(reward[mass > 0] / tau)
        ),
    ),
    (
        "102.2",
        "base",
        lambda reward, mass, tau: (
            (lambda x: x.max() + np.log(mass[mass > 0] @ np.exp(x - x.max())))(reward[mass > 0] / tau) / np.log(2)
        ),
    ),
    ("102.2", "concept", lambda reward, mass, tau: logsumexp(reward[mass > 0] / tau)),
    (
        "102.2",
        "edge",
        lambda reward, mass, tau: (
            (reward / tau).max() + np.log(np.maximum(mass @ np.exp(reward / tau - (reward / tau).max()), 1e-300))
        ),
    ),
    ("102.2", "concept", lambda reward, mass, tau: (reward[mass > 0] / tau).max()),
    # 102.3
    ("102.3", "sign", lambda p, goal: 1 / (odds(p) - odds(goal))),
    ("102.3", "concept", lambda p, goal: 1 / np.log((goal - p) / (1 - p))),
    ("102.3", "base", lambda p, goal: np.log(2) / (odds(goal) - odds(p))),
    ("102.3", "concept", lambda p, goal: 1 / (goal / (1 - goal) - p / (1 - p))),
    # 103.1
    ("103.1", "sign", lambda p, eta: p / (np.log(1 - eta) * eta)),
    ("103.1", "base", lambda p, eta: -p / (np.log2(1 - eta) * eta)),
    ("103.1", "square", lambda p, eta: -p / (np.log(1 - eta) * eta**2)),
    ("103.1", "concept", lambda p, eta: -p / (np.log(1 - eta) * (1 - eta))),
    # 103.2
    ("103.2", "concept", lambda pi, reward, tau: newton_lambda(pi, reward, tau, baseline=0.0)),
    ("103.2", "concept", lambda pi, reward, tau: newton_lambda(pi, reward, tau, baseline=reward.mean())),
    ("103.2", "concept", lambda pi, reward, tau: newton_lambda(pi, reward, tau) / tau),
    ("103.2", "factor", lambda pi, reward, tau: newton_lambda(pi, reward, tau) / 2),
    # 103.3
    ("103.3", "sign", lambda pi, new, tau: tau**2 * (pi @ np.log(new / pi))),
    ("103.3", "base", lambda pi, new, tau: -(tau**2) * (pi @ np.log2(new / pi))),
    ("103.3", "aggregate", lambda pi, new, tau: -(tau**2) * np.log(new / pi).mean()),
    ("103.3", "aggregate", lambda pi, new, tau: -(tau**2) * np.log(new / pi).sum()),
    # 104.1
    ("104.1", "sign", lambda right, wrong, tau: (tau * (right - wrong) - 1) / (np.exp(right) - np.exp(wrong))),
    ("104.1", "concept", lambda right, wrong, tau: (1 - (right - wrong)) / (np.exp(right) - np.exp(wrong))),
    ("104.1", "concept", lambda right, wrong, tau: (1 - tau * (right + wrong)) / (np.exp(right) + np.exp(wrong))),
    ("104.1", "concept", lambda right, wrong, tau: (1 - tau * (right - wrong)) / np.exp(right - wrong)),
    # 104.2
    ("104.2", "factor", lambda pi, reward: 2 * (pi @ np.maximum(reward - pi @ reward, 0))),
    ("104.2", "square", lambda pi, reward: pi @ np.maximum(reward - pi @ reward, 0) ** 2),
    ("104.2", "concept", lambda pi, reward: (pi @ reward) * (1 - pi @ reward)),
    ("104.2", "square", lambda pi, reward: np.sqrt(pi @ (reward - pi @ reward) ** 2)),
    # 105.1
    (
        "105.1",
        "off-by-one",
        lambda reward: reward - (reward.sum(1, keepdims=True) - reward) / (reward.shape[1] - 2 + 1e-9),
    ),
    (
        "105.1",
        "axis",
        lambda reward: (lambda r: (r - (r.sum(1, keepdims=True) - r) / max(r.shape[1] - 1, 1)).T)(reward.T),
    ),
    ("105.1", "sign", lambda reward: (reward.sum(1, keepdims=True) - reward) / (reward.shape[1] - 1) - reward),
    ("105.1", "off-by-one edge", loop_of_groups),
    ("105.1", "concept", lambda reward: (reward.sum(1, keepdims=True) - reward) / (reward.shape[1] - 1)),
    # 105.2
    (
        "105.2",
        "sign",
        lambda r, tau: np.array(
            [logsumexp(np.delete(r, i) / tau) - np.log(len(r) - 1) - r[i] / tau for i in range(len(r))]
        ),
    ),
    (
        "105.2",
        "concept",
        lambda r, tau: np.array([r[i] / tau - logsumexp(np.delete(r, i) / tau) for i in range(len(r))]),
    ),
    (
        "105.2",
        "concept",
        lambda r, tau: np.array(
            [r[i] - tau * (logsumexp(np.delete(r, i) / tau) - np.log(len(r) - 1)) for i in range(len(r))]
        ),
    ),
    (
        "105.2",
        "base",
        lambda r, tau: np.array(
            [(r[i] / tau - logsumexp(np.delete(r, i) / tau) + np.log(len(r) - 1)) / np.log(2) for i in range(len(r))]
        ),
    ),
    # 106.1
    ("106.1", "off-by-one", lambda p0, tau, goal: max(0, int(np.ceil(tau * (odds(goal) - odds(p0)))) + 1)),
    ("106.1", "rounding", lambda p0, tau, goal: max(0, round(float(tau * (odds(goal) - odds(p0)))))),
    ("106.1", "rounding", lambda p0, tau, goal: max(0.0, float(tau * (odds(goal) - odds(p0))))),
    ("106.1", "base", lambda p0, tau, goal: max(0, math.ceil(tau * (odds(goal) - odds(p0)) / math.log(2)))),
    ("106.1", "edge", lambda p0, tau, goal: max(1, math.ceil(tau * (odds(goal) - odds(p0))))),
    # 106.2
    (
        "106.2",
        "concept",
        lambda p, share: brentq(lambda tau: 1 - -np.expm1(-p / tau) / theory.binary(p, tau).eta - share, p / 60, p) / p,
    ),
    (
        "106.2",
        "inverse",
        lambda p, share: 1 / brentq(lambda tau: 1 - -np.expm1(-p / tau) / theory.binary(p, tau).eta - share, p / 60, p),
    ),
    (
        "106.2",
        "rounding",
        lambda p, share: next(
            tau for tau in np.linspace(p / 60, p, 100) if 1 - -np.expm1(-p / tau) / theory.binary(p, tau).eta > share
        ),
    ),
    # 107.1
    ("107.1", "order", lambda a, b: interval(a, b, t975)[::-1]),
    ("107.1", "off-by-one", lambda a, b: interval(a, b, lambda n: student.ppf(0.975, n))),
    ("107.1", "concept", lambda a, b: tuple(x + a.mean() for x in interval(a, b, t975))),
    (
        "107.1",
        "square",
        lambda a, b: (
            lambda d: (
                d.mean() - t975(len(d)) * d.var(ddof=1) / np.sqrt(len(d)),
                d.mean() + t975(len(d)) * d.var(ddof=1) / np.sqrt(len(d)),
            )
        )(b - a),
    ),
    ("107.1", "form", lambda a, b: [list(interval(a, b, t975))]),
    # 107.2
    (
        "107.2",
        "axis",
        lambda contexts, arms: binom.pmf(1 + np.arange(contexts)[None, :], 1 + np.arange(arms)[:, None], 0.5),
    ),
    (
        "107.2",
        "concept",
        lambda contexts, arms: binom.cdf(1 + np.arange(contexts)[:, None], 1 + np.arange(arms)[None, :], 0.5),
    ),
    (
        "107.2",
        "off-by-one",
        lambda contexts, arms: binom.pmf(1 + np.arange(contexts)[:, None], 2 + np.arange(arms)[None, :], 0.5),
    ),
    (
        "107.2",
        "concept",
        lambda contexts, arms: binom.pmf(1 + np.arange(arms)[None, :], 1 + np.arange(contexts)[:, None], 0.5),
    ),
    # 201.1
    ("201.1", "square", lambda f, g, lr: -(lr**2) * dot(f, g)),
    ("201.1", "concept", lambda f, g, lr: -lr * dot(g, g)),
    ("201.1", "concept", lambda f, g, lr: -lr * dot(f, f)),
    ("201.1", "aggregate", lambda f, g, lr: -lr * dot(f, g) / sum(a.numel() for a in f)),
    ("201.1", "form", lambda f, g, lr: [-lr * float((a * b).sum()) for a, b in zip(f, g, strict=True)]),
    # 201.2
    ("201.2", "order", lambda lp, old, m: (lambda s, n, c: (1 / (c * n), s))(*summed(lp, old, m))),
    ("201.2", "sign", lambda lp, old, m: (lambda s, n, c: (-s, 1 / (c * n)))(*summed(lp, old, m))),
    (
        "201.2",
        "axis form",
        lambda lp, old, m: (lambda d, k: (d.sum(0), 1 / (len(k) * np.maximum(k.sum(0), 1))))(*shared_axis(lp, old, m)),
    ),
    ("201.2", "concept", lambda lp, old, m: (lambda s, n, c: (np.exp(s), 1 / (c * n)))(*summed(lp, old, m))),
    ("201.2", "aggregate", lambda lp, old, m: (lambda s, n, c: (s.sum(), 1 / (c * n)))(*summed(lp, old, m))),
    # 202.1
    ("202.1", "aggregate", lambda p, group: (p**group + (1 - p) ** group).sum()),
    ("202.1", "concept", lambda p, group: (p**group * (1 - p) ** group).mean()),
    ("202.1", "off-by-one", lambda p, group: (p ** (group - 1) + (1 - p) ** (group - 1)).mean()),
    ("202.1", "aggregate", lambda p, group: np.median(p**group + (1 - p) ** group)),
    ("202.1", "concept", lambda p, group: float(np.mean((p == 0) | (p == 1)))),
    # 202.2
    ("202.2", "rounding", lambda p, sure: np.log1p(-sure) / np.log1p(-p)),
    ("202.2", "rounding", lambda p, sure: round(float(np.log1p(-sure) / np.log1p(-p)))),
    ("202.2", "off-by-one", lambda p, sure: math.ceil(np.log1p(-sure) / np.log1p(-p)) + 1),
    ("202.2", "concept", lambda p, sure: math.ceil(np.log(sure) / np.log1p(-p))),
    ("202.2", "inverse concept", lambda p, sure: math.ceil(np.log1p(-p) / np.log1p(-sure))),
    # 203.1
    ("203.1", "concept", lambda f, e, u, m: (f + e + u) / (f / m + e + u) - 1),
    ("203.1", "concept", lambda f, e, u, m: (f + m * e + u) / (f / m + e + u)),
    ("203.1", "off-by-one", lambda f, e, u, m: (f + e + u) / (f / (m + 1) + e + u)),
    ("203.1", "concept", lambda f, e, u, m: m * (f + e + u) / (f / m + e + u)),
    # 203.2
    ("203.2", "order", lambda m, passes, lag: (lag * m * passes + np.arange(m * passes))[::-1]),
    ("203.2", "off-by-one", lambda m, passes, lag: (lag - 1) * m * passes + np.arange(m * passes)),
    ("203.2", "concept", lambda m, passes, lag: lag * m * passes + np.repeat(np.arange(m), passes)),
    ("203.2", "form", lambda m, passes, lag: lag * m * passes + np.arange(m)),
    # 204.1
    (
        "204.1",
        "sign",
        lambda r, s: np.where(s, (r[s].sum() - r) / max(s.sum() - 1, 1) - r, 0.0) if s.sum() > 1 else np.zeros(len(r)),
    ),
    (
        "204.1",
        "off-by-one concept",
        lambda r, s: np.where(s, r - (r[s].sum() - r) / s.sum(), 0.0) if s.sum() > 1 else np.zeros(len(r)),
    ),
    (
        "204.1",
        "form",
        lambda r, s: (r[s] - (r[s].sum() - r[s]) / max(s.sum() - 1, 1)) if s.sum() > 1 else np.zeros(s.sum()),
    ),
    ("204.1", "concept", lambda r, s: np.where(s, r - r.mean(), 0.0) if s.sum() > 1 else np.zeros(len(r))),
    # 204.2
    ("204.2", "concept", lambda quick, slow: 1 - quick / slow),
    ("204.2", "sign concept", lambda quick, slow: quick / (1 - slow) - 1),
    ("204.2", "concept", lambda quick, slow: 1 - slow / (1 - quick)),
    ("204.2", "concept", lambda quick, slow: (1 - quick - slow) / (1 - quick)),
    # 301.1
    ("301.1", "square", lambda a, n, p, g: -(a**2) / (2 * p * g * n)),
    ("301.1", "factor", lambda a, n, p, g: -a / (2 * p * g * n)),
    ("301.1", "inverse concept", lambda a, n, p, g: -a * n / (p * g)),
    ("301.1", "concept", lambda a, n, p, g: -a / n),
    # 301.2
    ("301.2", "form", lambda lengths: np.concatenate(lengths) / np.concatenate(lengths).sum()),
    ("301.2", "inverse", lambda lengths: sum(x.sum() for x in lengths) / np.array([x.sum() for x in lengths])),
    ("301.2", "concept", lambda lengths: np.array([float(x.sum()) for x in lengths])),
    ("301.2", "concept", lambda lengths: np.array([x.max() for x in lengths]) / sum(x.max() for x in lengths)),
    # 302.1
    ("302.1", "order", lambda p, a, s, n, g: (s // a - 1, p * s * g // n)),
    ("302.1", "off-by-one", lambda p, a, s, n, g: (p * s * g // n, s // a + 1)),
    ("302.1", "concept", lambda p, a, s, n, g: (p * a * s * g // n, s // a - 1)),
    ("302.1", "concept", lambda p, a, s, n, g: (p * s * g // n, s // a // 2)),
    # 302.2
    ("302.2", "rounding", lambda w, gib, one: 16 * w / 2**30 / (0.9 * gib - one) if 0.9 * gib > one else 0),
    ("302.2", "rounding", lambda w, gib, one: round(16 * w / 2**30 / (0.9 * gib - one)) if 0.9 * gib > one else 0),
    (
        "302.2",
        "off-by-one",
        lambda w, gib, one: math.floor(16 * w / 2**30 / (0.9 * gib - one)) + 2 if 0.9 * gib > one else 0,
    ),
    ("302.2", "edge", lambda w, gib, one: math.ceil(16 * w / 2**30 / (0.9 * gib - one))),
    ("302.2", "concept", lambda w, gib, one: math.ceil(16 * w / 2**30 / (0.9 * (gib - one))) if 0.9 * gib > one else 0),
    # 302.3
    ("302.3", "concept", best(lambda w, f, u, g, n: min(f + w / n, u / (g - n)))),
    ("302.3", "concept", best(lambda w, f, u, g, n: max(f + w / n, u / g))),
    ("302.3", "off-by-one", lambda w, f, u, g: min(range(1, g), key=lambda n: max(f + w / n, u / (g - n))) - 1),
    ("302.3", "rounding concept", lambda w, f, u, g: round(g * w / (w + u))),
    # 303.1
    (
        "303.1",
        "square",
        lambda right, draws: (lambda p: ((p * (1 - p) / (draws - 1)).sum() / len(p) ** 2, p.var(ddof=1) / len(p)))(
            right / draws
        ),
    ),
    (
        "303.1",
        "form",
        lambda right, draws: (lambda p: (np.sqrt(p * (1 - p) / (draws - 1)), p.std(ddof=1) / np.sqrt(len(p))))(
            right / draws
        ),
    ),
    (
        "303.1",
        "concept",
        lambda right, draws: (lambda p: (np.sqrt((p * (1 - p) / (draws - 1)).mean()), p.std(ddof=1) / np.sqrt(len(p))))(
            right / draws
        ),
    ),
    (
        "303.1",
        "concept",
        lambda right, draws: (
            lambda p: (np.sqrt((p * (1 - p) / (draws - 1)).sum()) / len(p), p.std(ddof=1) / np.sqrt(len(p) * draws))
        )(right / draws),
    ),
    # 303.2
    ("303.2", "concept", lambda right, draws, k: np.mean([1 - (1 - c / draws) ** k for c in right[right > 0]] or [0])),
    (
        "303.2",
        "aggregate",
        lambda right, draws, k: float(sum(1 - math.comb(draws - int(c), k) / math.comb(draws, k) for c in right)),
    ),
    (
        "303.2",
        "off-by-one",
        lambda right, draws, k: (
            1 - np.mean([math.comb(draws - int(c), k - 1) / math.comb(draws, k - 1) for c in right])
        ),
    ),
    (
        "303.2",
        "concept",
        lambda right, draws, k: np.mean([math.comb(draws - int(c), k) / math.comb(draws, k) for c in right]),
    ),
    # 303.3
    (
        "303.3",
        "order",
        lambda a, b: (lambda d, h: (d.mean() - h, d.mean(), d.mean() + h))(
            b - a, t975(len(a)) * (b - a).std(ddof=1) / np.sqrt(len(a))
        ),
    ),
    (
        "303.3",
        "off-by-one",
        lambda a, b: (lambda d, h: (d.mean(), d.mean() - h, d.mean() + h))(
            b - a, student.ppf(0.975, len(a)) * (b - a).std(ddof=1) / np.sqrt(len(a))
        ),
    ),
    ("303.3", "form", lambda a, b: interval(a, b, t975)),
    (
        "303.3",
        "concept",
        lambda a, b: (lambda d, h: (d.mean(), d.mean() - h, d.mean() + h))(
            b - a, norm.ppf(0.95) * (b - a).std(ddof=1) / np.sqrt(len(a))
        ),
    ),
    # 303.4
    ("303.4", "concept", lambda scores: scores[scores.mean(1).argmax(), 1::2].mean()),
    (
        "303.4",
        "axis",
        lambda scores: (
            (lambda e, o: (o[e.argmax()] + e[o.argmax()]) / 2)(scores[::2].mean(0), scores[1::2].mean(0))
            if len(scores) > 1
            else float(scores.mean())
        ),
    ),
    (
        "303.4",
        "aggregate",
        lambda scores: (lambda e, o: o[e.argmax()] + e[o.argmax()])(scores[:, ::2].mean(1), scores[:, 1::2].mean(1)),
    ),
    (
        "303.4",
        "concept",
        lambda scores: (
            lambda h: (
                (
                    scores[:, h:].mean(1)[scores[:, :h].mean(1).argmax()]
                    + scores[:, :h].mean(1)[scores[:, h:].mean(1).argmax()]
                )
                / 2
            )
        )(scores.shape[1] // 2),
    ),
    # 401.1
    (
        "401.1",
        "sign",
        lambda s, a, tau, width: (lambda r: np.where(r <= width, r**2 / 2, width * (r - width / 2)) / tau)(a - tau * s),
    ),
    (
        "401.1",
        "concept",
        lambda s, a, tau, width: (lambda r: np.where(r <= width, r**2 / 2, width * (r - width / 2)) / tau)(
            np.abs(a + tau * s)
        ),
    ),
    (
        "401.1",
        "concept",
        lambda s, a, tau, width: np.minimum((a - tau * s) ** 2 / 2, width * np.abs(a - tau * s)) / tau,
    ),
    (
        "401.1",
        "aggregate form",
        lambda s, a, tau, width: (lambda r: np.where(r <= width, r**2 / 2, width * (r - width / 2)).mean() / tau)(
            np.abs(a - tau * s)
        ),
    ),
    # 401.2
    ("401.2", "concept", lambda z, tau, cap: cap * tau * np.arctanh(np.clip(z / cap, -0.999, 0.999))),
    ("401.2", "concept", lambda z, tau, cap: cap * tau * np.arctan(np.log(z) / cap)),
    ("401.2", "base", lambda z, tau, cap: cap * tau * np.arctanh(np.clip(np.log2(z) / cap, -1 + 1e-12, 1 - 1e-12))),
    ("401.2", "sign", lambda z, tau, cap: -cap * tau * np.arctanh(np.log(z) / cap)),
    # 401.3
    (
        "401.3",
        "order sign concept",
        lambda a, b, tried: (lambda d, h: "undecided" if abs(d.mean()) <= h else "worse" if d.mean() > 0 else "better")(
            b - a, student.ppf(1 - 0.025 / tried, len(a) - 1) * (b - a).std(ddof=1) / np.sqrt(len(a))
        ),
    ),
    (
        "401.3",
        "concept",
        lambda a, b, tried: (lambda d, h: "undecided" if abs(d.mean()) <= h else "better" if d.mean() > 0 else "worse")(
            b - a, student.ppf(1 - 0.05 / tried, len(a) - 1) * (b - a).std(ddof=1) / np.sqrt(len(a))
        ),
    ),
    (
        "401.3",
        "concept",
        lambda a, b, tried: (lambda d, h: "better" if d.mean() > h else "undecided")(
            b - a, student.ppf(1 - 0.025 / tried, len(a) - 1) * (b - a).std(ddof=1) / np.sqrt(len(a))
        ),
    ),
    ("401.3", "form", lambda a, b, tried: bool(b.mean() > a.mean())),
]
"(exercise, kinds that are true of it, answer)"
