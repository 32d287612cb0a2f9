"""The paper's tables: its printed numbers, what follows from them, and tables as Markdown and CSV."""

import csv
import io
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


# Numbers from the four tables and the text of arXiv:2602.05933.

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


SCORES = (  # table main-results, in its order
    Score("7B", "GRPO", None, 16, 17.08, 10.52, 13.80),
    Score("7B", "on-policy", None, 1, 18.65, 18.33, 18.49),
    Score("7B", "PMD-mean", 0.005, 16, 19.69, 19.48, 19.58),
    Score("7B", "PMD-mean", 0.01, 16, 17.60, 17.50, 17.55),
    Score("7B", "PMD-mean", 0.02, 16, 22.50, 16.67, 19.58),
    Score("30B", "GRPO", None, 16, 36.56, 27.92, 32.24),
    Score("30B", "PMD-mean", 0.01, 16, 50.00, 35.10, 42.55),
    Score("30B", "PMD-mean", 0.1, 16, 50.83, 37.19, 44.01),
)
GSPO = (  # table gspo; its two PMD-mean rows are those of table main-results at tau 0.005 and 0.1
    Score("7B", "GSPO", None, 16, 15.52, 11.98, 13.75),
    Score("30B", "GSPO", None, 16, 53.33, 34.58, 43.96),
)
NAMED = {"7B": 0.005, "30B": 0.1}  # the temperature whose gains the text states, by model
GAINS = {"7B": (2.6, 9.0), "30B": (14.6, 8.1)}  # points over GRPO on AIME 24 and 25, according to the text

MILLISECONDS = {  # table efficiency_comparison, per token
    "on-policy": {"overall": 0.0569, "generation": 0.0512, "update": 0.0057},
    "PMD-mean": {"overall": 0.0126, "generation": 0.0062, "update": 0.0064},
}
SPEEDUP = 4.6  # according to the text

HYPERPARAMETERS: tuple[tuple[str, str | float, str | float], ...] = (  # table hyperparams: name, 7B dense, 30B MoE
    ("trainer.nnodes", 4, 8),
    ("trainer.n_gpus_per_node", 8, 8),
    ("distributed strategy", "FSDP", "Megatron"),
    ("model.path", "Qwen/Qwen2.5-7B", "Qwen/Qwen3-30B-A3B-Base"),
    ("data.train_batch_size (prompts)", 512, 512),
    ("data.gen_batch_size (prompts)", 512, 512),
    ("data.max_prompt_length", 2048, 2048),
    ("data.max_response_length", 8192, 20480),
    ("rollout.name", "vLLM", "vLLM"),
    ("rollout.n (group size)", 16, 16),
    ("rollout.temperature", 1.0, 1.0),
    ("rollout.top_p", 1.0, 1.0),
    ("rollout.max_model_len", 10240, 22528),
    ("val_kwargs.n (avg@k)", 32, 32),
    ("val_kwargs.temperature", 1.0, 1.0),
    ("val_kwargs.top_p", 0.7, 0.7),
    ("actor.ppo_epochs", 1, 1),
    ("actor.ppo_mini_batch_size (prompts)", 32, 32),
    ("actor.clip_ratio_low, GRPO", 0.2, 0.2),
    ("actor.clip_ratio_high, GRPO", 0.2, 0.2),
    ("actor.clip_ratio_low, GSPO", 3e-4, 3e-4),
    ("actor.clip_ratio_high, GSPO", 4e-4, 4e-4),
    ("optim.lr", 1e-6, 1e-6),
    ("optim.betas, first", 0.9, 0.9),
    ("optim.betas, second", 0.999, 0.999),
    ("optim.weight_decay", 0.01, 0.01),
    ("grad clip", 1.0, 1.0),
    ("tensor_model_parallel_size", 1, 2),
    ("pipeline_model_parallel_size", 1, 2),
    ("expert_model_parallel_size", "N/A", 8),
)
STEPS = {"7B": 495, "30B": 300}
EPOCHS = 15  # of the 7B model, according to the text


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
    """Table hyperparams as data, with the numbers that follow from it."""
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
