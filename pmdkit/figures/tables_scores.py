"""Tables main-results and gspo: the paper's scores with the intervals that 30 problems and 32 draws allow."""

import numpy as np

from pmdkit.figures.paper_numbers import DRAWS, GAINS, GSPO, NAMED, PROBLEMS, SCORES, Score
from pmdkit.figures.scores import BETWEEN, count, deviations, over_draws, over_problems
from pmdkit.figures.table import Table

COLUMNS = (
    "model, method", "AIME 24 (%)", "right of 960", "again, same problems", "other problems", "AIME 25 (%)",
    "right of 960", "again, same problems", "other problems", "average (%)", "average, recomputed",
)  # fmt: skip
READING = (
    f"Intervals of 95 %. Same problems: binomial over {PROBLEMS * DRAWS} draws, the widest that their luck can make. "
    "Other "
    f"problems: the {PROBLEMS} taken as a sample, with {BETWEEN:g} of the variance of a draw between problems "
    "(measured on "
    "AMC 2023 with another model; the paper gives no scores per problem). Neither holds the luck of training, of which "
    "the paper has one run a row, nor the choice of tau on the same problems."
)


def main_results() -> Table:
    """Table main-results with intervals, and the gains over GRPO in standard errors."""
    gains = {m: [own - base for base, own in zip(grpo(m).pair, named(m).pair, strict=True)] for m in NAMED}
    errors = {m: [deviations(*both) for both in zip(grpo(m).pair, named(m).pair, strict=True)] for m in NAMED}
    told = "; ".join(
        f"{model} {a:+.2f} and {b:+.2f} points ({x:.1f} and {y:.1f} standard errors of the draws; the text says "
        f"+{GAINS[model][0]} and +{GAINS[model][1]})"
        for model, ((a, b), (x, y)) in ((m, (gains[m], errors[m])) for m in NAMED)
    )
    sentence = f"Gains over GRPO on AIME 24 and 25 at the temperatures of the text: {told}. {READING}"
    found = data(SCORES) | {f"gains {model}": np.array(gains[model]) for model in NAMED}
    found |= {f"standard errors {model}": np.array(errors[model]) for model in NAMED}
    return Table("Table main-results: Avg@32", COLUMNS, [row(score) for score in SCORES], sentence, found)


def gspo() -> Table:
    """Table gspo with intervals: PMD-mean's rows are those of table main-results."""
    rows = [score for other in GSPO for score in (other, named(other.model))]
    errors = {
        other.model: [deviations(*both) for both in zip(other.pair, named(other.model).pair, strict=True)]
        for other in GSPO
    }
    told = "; ".join(f"{model} {x:+.1f} and {y:+.1f}" for model, (x, y) in errors.items())
    sentence = f"PMD-mean minus GSPO on AIME 24 and 25 in standard errors of the draws: {told}. {READING}"
    found = data(rows) | {f"standard errors {model}": np.array(errors[model]) for model in errors}
    return Table("Table gspo: PMD-mean and GSPO, Avg@32", COLUMNS, [row(score) for score in rows], sentence, found)


def grpo(model: str) -> Score:
    """The baseline of a model."""
    return next(score for score in SCORES if (score.model, score.method) == (model, "GRPO"))


def named(model: str) -> Score:
    """PMD-mean at the temperature that the text speaks of."""
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
