"""The paper's scores (tables main-results and gspo) with intervals for 30 problems and 32 draws each.

Two kinds of luck are separate: the luck of the draws, on the same problems, and the luck of the choice of problems.
"""

import numpy as np

from pmdkit.stats import Interval, clopper_pearson
from pmdkit_lab.figures.tables import DRAWS, GAINS, GSPO, NAMED, PROBLEMS, SCORES, Score, Table

# Share of the variance of one draw that lies between problems: 0.32 and 0.37 for two checkpoints of a 3B model on the
# 40 problems of AMC 2023, 50 samples each, at 14 % (open-thought/reasoning-gym-eval, Apache-2.0; numbers only).
BETWEEN = 0.35


def count(score: float) -> int:
    """The number of right draws of 960, from a score in percent that is printed with two digits."""
    return round(score / 100 * PROBLEMS * DRAWS)


def over_draws(score: float) -> Interval:
    r"""95 % interval in percent for new draws on the same problems: Clopper and Pearson on 960 draws.

    $$ \mathrm{var} = \frac{1}{P^2}\sum_i \frac{p_i(1-p_i)}{k} \le \frac{\bar p(1-\bar p)}{Pk} $$

    The table gives no score per problem. The binomial interval assumes that all problems are equally hard, so it is the
    widest that the luck of the draws can produce.
    """
    return over_problems(score, between=0.0)


def over_problems(score: float, between: float = BETWEEN) -> Interval:
    r"""95 % interval in percent for the kind of problem that these 30 are a sample of.

    $$ \mathrm{var} = \bar p(1-\bar p)\,\frac{\rho + (1-\rho)/k}{P} $$

    P = 30 problems, k = 32 draws each. This is a binomial interval for the number of draws with this variance.

    Args:
        score: in percent.
        between: rho, the share of the variance of a draw that lies between problems: 0 if all are equally hard, 1 if
            each is always or never solved. The paper gives nothing to estimate it from; BETWEEN is from other data.
    """
    ends = clopper_pearson(count(score) / (PROBLEMS * DRAWS), PROBLEMS / (between + (1 - between) / DRAWS))
    return Interval(100 * ends.low, 100 * ends.high)


def deviations(first: float, second: float, draws: float = PROBLEMS * DRAWS) -> float:
    """Second minus first in standard errors, as independent binomial shares of `draws` draws; scores in percent."""
    one, two = (count(score) / (PROBLEMS * DRAWS) for score in (first, second))
    return float((two - one) / np.sqrt(one * (1 - one) / draws + two * (1 - two) / draws))


COLUMNS = (
    "model, method", "AIME 24 (%)", "right of 960", "again, same problems", "other problems", "AIME 25 (%)",
    "right of 960", "again, same problems", "other problems", "average (%)", "average, recomputed",
)  # fmt: skip
READING = (
    f"Intervals of 95 %. Same problems: binomial over {PROBLEMS * DRAWS} draws, the widest that their luck can make. "
    f"Other problems: the {PROBLEMS} taken as a sample, with {BETWEEN:g} of the variance of a draw between problems "
    "(measured on AMC 2023 with another model; the paper gives no scores per problem). Neither holds the luck of "
    "training, of which the paper has one run a row, nor the choice of tau on the same problems."
)


def main_results() -> Table:
    """Table main-results with intervals, and the gains over GRPO in standard errors."""
    gains = {m: [own - base for base, own in zip(grpo(m).pair, named(m).pair, strict=True)] for m in NAMED}
    errors = {m: [deviations(*both) for both in zip(grpo(m).pair, named(m).pair, strict=True)] for m in NAMED}
    words = "; ".join(
        f"{model} {a:+.2f} and {b:+.2f} points ({x:.1f} and {y:.1f} standard errors of the draws; the text says "
        f"+{GAINS[model][0]} and +{GAINS[model][1]})"
        for model, ((a, b), (x, y)) in ((m, (gains[m], errors[m])) for m in NAMED)
    )
    sentence = f"Gains over GRPO on AIME 24 and 25 at the temperatures of the text: {words}. {READING}"
    found = data(SCORES) | {f"gains {model}": np.array(gains[model]) for model in NAMED}
    found |= {f"standard errors {model}": np.array(errors[model]) for model in NAMED}
    return Table("Table main-results: Avg@32", COLUMNS, [row(score) for score in SCORES], sentence, found)


def gspo() -> Table:
    """Table gspo with intervals; PMD-mean's rows are from table main-results."""
    rows = [score for other in GSPO for score in (other, named(other.model))]
    errors = {s.model: [deviations(*both) for both in zip(s.pair, named(s.model).pair, strict=True)] for s in GSPO}
    words = "; ".join(f"{model} {x:+.1f} and {y:+.1f}" for model, (x, y) in errors.items())
    sentence = f"PMD-mean minus GSPO on AIME 24 and 25 in standard errors of the draws: {words}. {READING}"
    found = data(rows) | {f"standard errors {model}": np.array(errors[model]) for model in errors}
    return Table("Table gspo: PMD-mean and GSPO, Avg@32", COLUMNS, [row(score) for score in rows], sentence, found)


def grpo(model: str) -> Score:
    """The GRPO score of a model, the baseline."""
    return next(score for score in SCORES if (score.model, score.method) == (model, "GRPO"))


def named(model: str) -> Score:
    """The scores of PMD-mean for a model, at the temperature whose gains the paper's text states."""
    return next(score for score in SCORES if (score.model, score.tau) == (model, NAMED[model]))


def row(score: Score) -> list[str]:
    """The cells of a row."""
    cells = [f"{score.model}, {score.name}"]
    for value in score.pair:
        draws, problems = over_draws(value), over_problems(value)
        cells += [f"{value:.2f}", str(count(value)), f"{draws.low:.1f} to {draws.high:.1f}"]
        cells.append(f"{problems.low:.0f} to {problems.high:.0f}")
    recomputed = (count(score.aime24) + count(score.aime25)) / (2 * PROBLEMS * DRAWS) * 100
    return [*cells, f"{score.average:.2f}", f"{recomputed:.3f}"]


def data(rows: tuple[Score, ...] | list[Score]) -> dict[str, np.ndarray]:
    """The numbers of the rows, by column."""
    values = np.array([score.pair for score in rows])
    return {
        "score": values,
        "count": np.array([[count(value) for value in pair] for pair in values], float),
        "over draws": np.array([[[i.low, i.high] for i in map(over_draws, pair)] for pair in values]),
        "over problems": np.array([[[i.low, i.high] for i in map(over_problems, pair)] for pair in values]),
    }
