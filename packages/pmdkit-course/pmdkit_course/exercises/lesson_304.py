"""Exercises of lesson 304: what a run has learned, why its KL has a tail, and a grader that pays wrong answers."""

import json
import re

import numpy as np

from pmdkit_course.exercises import Array, Exercise
from pmdkit_course.lesson_files import stored_run


def two_parts(before: Array, after: Array) -> Array:
    """f' a' - f a = (f' - f)(a + a')/2 + (a' - a)(f + f')/2: each change at the mean level of the other, none left."""
    (f, a), (g, b) = before, after
    return (g - f) * (a + b) / 2, (b - a) * (f + g) / 2


def logarithmic(before: Array, after: Array) -> Array:
    """The gain in proportion to the logarithms of the changes, as in LMDI."""
    (f, a), (g, b) = before, after
    gain, grown = g * b - f * a, np.log(g * b) - np.log(f * a)
    return tuple(gain / grown * np.log(x) for x in (g / f, b / a)) if grown else (0.0, 0.0)


def levels(rng: np.random.Generator) -> list[tuple[Array, Array]]:
    """Runs that learn both, a lesson that learns the format alone, and one whose format gets lost."""
    found = [(rng.uniform(0.1, 0.6, 2), rng.uniform(0.4, 1, 2)) for _ in range(4)]
    return [*found, (np.array([0.6, 0.25]), np.array([1.0, 0.25])), (np.array([0.9, 0.3]), np.array([0.5, 0.6]))]


def kl_and_largest(log_ratio: Array) -> Array:
    """The draws are pi_old's, so each is weighted by w = e^s; w - 1 has mean 0 and makes every term at least 0."""
    terms = np.exp(log_ratio) * log_ratio - np.expm1(log_ratio)
    return terms.mean(), terms.max() / terms.sum()


def steps(rng: np.random.Generator) -> list[tuple[Array]]:
    """Log-ratios as a calm step has them, and one with a response that became 1,400 times likelier."""
    calm = [(rng.normal(-0.1, spread, n),) for spread, n in ((0.2, 8), (0.5, 16), (1.0, 12))]
    return [*calm, (np.append(rng.normal(-0.5, 1, 15), np.log(1400)),), (np.array([0.3, -2.0, 0.1, -9.0]),)]


def terms_of(log_ratio: Array, terms: Array) -> Array:
    """Their mean, and the share of the largest."""
    return terms.mean(), terms.max() / terms.sum()


def grader_errors(gold: Array, given: Array, reward: Array) -> Array:
    """Of the wrong answers, those that were paid; of the right ones, those that were not."""
    right = given == gold
    return (reward[~right] > 0).mean(), (reward[right] == 0).mean()


def rates(gold: Array, given: Array, reward: Array, swap: bool = False) -> Array:
    """The same two kinds of rows, as shares of all rows, or of the paid and the unpaid ones."""
    right, paid = given == gold, reward > 0
    return (
        ((~right & paid).sum() / paid.sum(), (right & ~paid).sum() / (~paid).sum())
        if swap
        else (
            (~right & paid).mean(),
            (right & ~paid).mean(),
        )
    )


def answered_only(gold: Array, given: Array, reward: Array) -> Array:
    """Responses without an answer are left out."""
    there = given >= 0
    return grader_errors(gold[there], given[there], reward[there])


def planted() -> tuple[Array, Array, Array]:
    """Gold answers, answers and rewards of the run with the fault; -1 is no answer."""
    paths = sorted(stored_run("planted").glob("rollouts/*.jsonl"))
    rows = [json.loads(line) for path in paths for line in path.read_text("utf-8").splitlines()]
    given = [re.search(r"Answer: *(-?[0-9]+)", row["response"]) for row in rows]
    return (
        np.array([int(row["answer"]) for row in rows]),
        np.array([-1 if each is None else int(each[1]) for each in given]),
        np.array([row["reward"] for row in rows]),
    )


def graded(rng: np.random.Generator) -> list[tuple[Array, Array, Array]]:
    """The stored run; graders that look at the last digit, or the first, that pay at random; and an honest one."""
    cases = [planted()]
    for judge in (
        lambda g, a: (g % 10 == a % 10) & (a >= 0),
        lambda g, a: (g // 10 == a // 10) | (a < 0),
        lambda g, a: rng.random(len(g)) < 0.3 + 0.4 * (g == a),
        lambda g, a: g == a,
    ):
        gold = rng.integers(10, 60, 24)
        given = np.where(rng.random(24) < 0.5, gold, gold + rng.choice([-10, 10, 1, 0], 24))
        given = np.where(rng.random(24) < 0.25, -1, given)
        cases.append((gold, given, judge(gold, given) * 1.0))
    return cases


EXERCISES = (
    Exercise(
        solution=two_parts,
        inputs=levels,
        slips={
            "A point of format is worth as many points of pass rate as answers in the format are right: the changes "
            "alone do not add up to the gain.": lambda before, after: (after[0] - before[0], after[1] - before[1]),
            "Both changes are taken at the level before. What they do together is in neither part.": (
                lambda before, after: ((after[0] - before[0]) * before[1], (after[1] - before[1]) * before[0])
            ),
            "Both changes are taken at the level after. What they do together is counted twice.": (
                lambda before, after: ((after[0] - before[0]) * after[1], (after[1] - before[1]) * after[0])
            ),
            "Geometric means of the levels treat both alike, but the parts do not add up to the gain.": (
                lambda before, after: (
                    (after[0] - before[0]) * np.sqrt(before[1] * after[1]),
                    (after[1] - before[1]) * np.sqrt(before[0] * after[0]),
                )
            ),
            "They add up and treat both alike, but by a logarithmic mean. The mean level is asked for: before plus "
            "after, halved.": logarithmic,
            "They add up, but one part has all of what the changes do together. Treat both alike.": (
                lambda before, after: ((after[0] - before[0]) * after[1], (after[1] - before[1]) * before[0]),
                lambda before, after: ((after[0] - before[0]) * before[1], (after[1] - before[1]) * after[0]),
            ),
        },
        hints=(
            "The pass rate is a product, format times right given the format. How does a product change?",
            "f' a' - f a = (f' - f) times some level of a, plus (a' - a) times some level of f. Which two levels?",
            "For both, the mean of before and after.",
        ),
    ),
    Exercise(
        solution=kl_and_largest,
        inputs=steps,
        slips={
            "That is KL(old || new). The new policy comes first here: weight each draw of the old one.": (
                lambda log_ratio: terms_of(log_ratio, np.expm1(log_ratio) - log_ratio),
                lambda log_ratio: terms_of(log_ratio, -log_ratio),
            ),
            "The draws are weighted, but some terms are negative. Take off what has mean 0 and makes them positive.": (
                lambda log_ratio: terms_of(log_ratio, np.exp(log_ratio) * log_ratio)
            ),
            "The draws are the old policy's: the mean of s over them is not that over the new policy.": (
                lambda log_ratio: terms_of(log_ratio, log_ratio)
            ),
            "That is right only near 0, where all estimates of KL look like half a square.": lambda log_ratio: terms_of(
                log_ratio, log_ratio**2 / 2
            ),
            "The first is right. The second is how many times the mean the largest term is.": lambda log_ratio: (
                kl_and_largest(log_ratio)[0],
                kl_and_largest(log_ratio)[1] * len(log_ratio),
            ),
        },
        hints=(
            "An expectation over the new policy is one over the old policy, with each draw weighted by the ratio.",
            "The ratio is e^s. So the term is s e^s, plus something that has mean 0 over the old policy.",
            "The mean of e^s over the old policy is 1: s e^s - e^s + 1 is never negative.",
        ),
    ),
    Exercise(
        solution=grader_errors,
        inputs=graded,
        slips={
            "Those are shares of all responses. Divide by the wrong ones, and by the right ones.": rates,
            "That asks how many of the paid responses are wrong. Ask how many of the wrong ones are paid.": (
                lambda gold, given, reward: rates(gold, given, reward, swap=True)
            ),
            "A response without an answer is a wrong one, and a grader may pay it.": answered_only,
            "Responses without an answer are among the right ones there. They are wrong.": lambda gold, given, reward: (
                grader_errors(np.where(given < 0, given, gold), given, reward)
            ),
            "The two are exchanged: wrong and paid first, right and unpaid second.": lambda gold, given, reward: (
                grader_errors(gold, given, reward)[::-1]
            ),
            "Those are the shares that the grader got right.": lambda gold, given, reward: tuple(
                1 - each for each in grader_errors(gold, given, reward)
            ),
        },
        hints=(
            "`given == gold` says which responses are right, whatever the grader said. -1 equals no gold answer.",
            "Among the wrong ones, the share with a reward; among the right ones, the share without.",
            "reward[~right].mean(), for rewards of 0 and 1, and one minus reward[right].mean().",
        ),
    ),
)
