"""The paper's tables: its printed numbers, what follows from them, and tables as Markdown and CSV."""

import csv
import io
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pmdkit.figures.style import write
from pmdkit.stats import interval_text, mean_interval
from pmdkit_lab.figures.training_curves import TASKS, stored


@dataclass(frozen=True)
class Table:
    """A finished table.

    Attributes:
        title: what it is in the paper.
        columns: headings, with units.
        rows: cells as they are shown.
        sentence: what to notice.
        data: the numbers, by name.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    sentence: str
    data: Mapping[str, np.ndarray[Any, Any]]

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.columns) for row in self.rows)

    def markdown(self) -> str:
        """The title, the table and the sentence as Markdown."""
        lines = [list(self.columns), ["---"] * len(self.columns), *self.rows]
        table = "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines)
        return f"## {self.title}\n\n{table}\n\n{self.sentence}\n"

    def save(self, path: str | Path) -> list[Path]:
        """Write `path`.md and `path`.csv."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.columns, *self.rows])
        return write(path, {"md": self.markdown().encode(), "csv": text.getvalue().encode()})


# Numbers from the four tables and the text of arXiv:2602.05933, in paper.toml.

PROBLEMS, DRAWS = 30, 32  # AIME 2024 and AIME 2025 have 30 problems each; Avg@32


class Score(NamedTuple):
    """A row of table main-results or gspo; scores in percent."""

    model: str
    method: str
    tau: float | None
    staleness: int
    aime24: float
    aime25: float
    average: float

    @property
    def pair(self) -> tuple[float, float]:
        """The scores on AIME 24 and AIME 25."""
        return self.aime24, self.aime25

    @property
    def name(self) -> str:
        """The method with its temperature."""
        return self.method if self.tau is None else f"{self.method}, tau {self.tau:g}"


PAPER: dict[str, Any] = tomllib.loads(Path(__file__).with_name("paper.toml").read_text(encoding="utf-8"))
SCORES = tuple(Score(model, method, tau or None, *rest) for model, method, tau, *rest in PAPER["scores"])
GSPO = tuple(Score(model, method, tau or None, *rest) for model, method, tau, *rest in PAPER["gspo"])
NAMED: dict[str, float] = PAPER["named"]
GAINS: dict[str, list[float]] = PAPER["gains"]
MILLISECONDS: dict[str, dict[str, float]] = PAPER["milliseconds"]
SPEEDUP: float = PAPER["speedup"]
HYPERPARAMETERS: list[tuple[str, str | float, str | float]] = [tuple(row) for row in PAPER["hyperparameters"]]
STEPS: dict[str, int] = PAPER["steps"]
EPOCHS: int = PAPER["epochs"]


HALF_DIGIT = 0.00005  # the table prints four decimals


def speed() -> Table:
    """Milliseconds per token, how they add up, and the speedup with bounds for the table's rounding."""
    on, off = MILLISECONDS["on-policy"], MILLISECONDS["PMD-mean"]
    ratio = {part: on[part] / off[part] for part in on}
    ends = {part: tuple((on[part] + d) / (off[part] - d) for d in (-HALF_DIGIT, HALF_DIGIT)) for part in on}
    rows = [
        [name, *(f"{each[part]:.4f}" for part in on), f"{each['generation'] + each['update']:.4f}"]
        for name, each in MILLISECONDS.items()
    ]
    rows.append(["on-policy / PMD-mean", *(f"{ratio[part]:.2f}" for part in on), "-"])
    rows.append(["with the rounding", *(f"{low:.2f} to {high:.2f}" for low, high in ends.values()), "-"])
    words = []
    for env, task in TASKS.items():  # the stored toy runs
        cost = []
        for level in (1, 16):
            own = [run for run in stored()["speed"] if (run["env"], run["staleness"]) == (env, level)]
            own.sort(key=lambda run: run["seed"])
            parts = np.array([[run[f"ms_per_token_{part}"] for part in ("rollout", "update")] for run in own])
            cost.append(parts.sum(1))
            means = [cost[-1].mean(), *parts.mean(0), cost[-1].mean()]
            rows.append([f"toy {task.split(',')[0]}, staleness {level}", *(f"{value:.4f}" for value in means)])
        words.append(f"{task.split(',')[0]} {interval_text(mean_interval(cost[0] / cost[1]))} times")
    sentence = (
        f"The speedup is {ratio['overall']:.2f}, {ends['overall'][0]:.2f} to {ends['overall'][1]:.2f} with the "
        f"rounding; the text says {SPEEDUP}. All of it is generation, {ratio['generation']:.1f} times cheaper per "
        f"token; the update is {1 / ratio['update']:.2f} times as expensive. Generation and update add up to the "
        "overall time: nothing else is in it. Toy transformers on one CPU thread have no idle engine to fill: "
        f"{'; '.join(words)}."
    )
    columns = ("ms per token", "overall", "generation", "update", "generation + update")
    found = {part: np.array([on[part], off[part], ratio[part], *ends[part]]) for part in on}
    return Table("Table efficiency_comparison", columns, rows, sentence, found)


def hyperparameters() -> Table:
    """The paper's table of hyperparameters as data, with numbers that follow from it, such as GPUs and ministeps."""
    derived = follow()
    rows = [[name, shown(dense), shown(moe)] for name, dense, moe in HYPERPARAMETERS]
    rows += [[f"*{name}*", *map(shown, pair)] for name, pair in derived.items()]
    sentence = (
        "Slanted rows follow from the others. A global batch is 512 prompts or 8,192 responses, and 16 ministeps of "
        f"512 sequences: the staleness of table main-results. {STEPS['7B']} steps of 512 prompts are {EPOCHS} passes "
        "over 33 whole batches, true of a set of 16,896 to 17,407 problems."
    )
    return Table("Table hyperparams", ("parameter", "7B dense", "30B MoE"), rows, sentence, derived)


def follow() -> dict[str, np.ndarray]:
    """Responses, ministeps, GPUs and sequence lengths of both models, computed from the rows of the table."""

    def column(name: str) -> np.ndarray:
        return np.array(next(values for key, *values in HYPERPARAMETERS if key == name), dtype=float)

    prompts, group = column("data.train_batch_size (prompts)"), column("rollout.n (group size)")
    mini = column("actor.ppo_mini_batch_size (prompts)")
    return {
        "responses per step": prompts * group,
        "ministeps per step (staleness)": prompts / mini,
        "sequences per ministep": mini * group,
        "GPUs": column("trainer.nnodes") * column("trainer.n_gpus_per_node"),
        "prompt + response length": column("data.max_prompt_length") + column("data.max_response_length"),
    }


def shown(value: str | float) -> str:
    """A number without trailing zeros."""
    return value if isinstance(value, str) else f"{value:g}"
