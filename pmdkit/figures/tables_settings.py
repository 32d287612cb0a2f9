"""Tables efficiency_comparison and hyperparams: the paper's numbers, and what can be worked out from them alone."""

from operator import itemgetter

import numpy as np

from pmdkit.figures.paper_numbers import EPOCHS, HYPERPARAMETERS, MILLISECONDS, SPEEDUP, STEPS
from pmdkit.figures.table import Table
from pmdkit.figures.toy_runs import TASKS, interval, stored
from pmdkit.figures.toy_runs import told as shares

HALF_DIGIT = 0.00005  # the table prints four decimals


def speed() -> Table:
    """Milliseconds per token, how they add up, and the ratio with the rounding of the table."""
    on, off = MILLISECONDS["on-policy"], MILLISECONDS["PMD-mean"]
    ratio = {part: on[part] / off[part] for part in on}
    ends = {part: tuple((on[part] + d) / (off[part] - d) for d in (-HALF_DIGIT, HALF_DIGIT)) for part in on}
    rows = [
        [name, *(f"{each[part]:.4f}" for part in on), f"{each['generation'] + each['update']:.4f}"]
        for name, each in MILLISECONDS.items()
    ]
    rows.append(["on-policy / PMD-mean", *(f"{ratio[part]:.2f}" for part in on), "-"])
    rows.append(["with the rounding", *(f"{low:.2f} to {high:.2f}" for low, high in ends.values()), "-"])
    toys, told = toy_speed()
    rows += toys
    sentence = (
        f"The speedup is {ratio['overall']:.2f}, {ends['overall'][0]:.2f} to {ends['overall'][1]:.2f} with the "
        "rounding; "
        f"the text says {SPEEDUP}. All of it is generation, {ratio['generation']:.1f} times cheaper per token; the "
        "update "
        f"is {1 / ratio['update']:.2f} times dearer. Generation and update add up to the overall time: nothing else "
        "is in it."
    )
    columns = ("ms per token", "overall", "generation", "update", "generation + update")
    sentence += f" Toy transformers on one CPU thread have no idle engine to fill: {told}."
    found = {part: np.array([on[part], off[part], ratio[part], *ends[part]]) for part in on}
    return Table("Table efficiency_comparison", columns, rows, sentence, found)


def toy_speed() -> tuple[list[list[str]], str]:
    """Rows of the stored toy runs, staleness 1 and 16, and the speedup with its interval over seeds in words."""
    runs, rows, told = stored()["speed"], [], []
    for env, task in TASKS.items():
        of = {}
        for level in (1, 16):
            own = sorted(
                (run for run in runs if (run["env"], run["staleness"]) == (env, level)), key=itemgetter("seed")
            )
            parts = np.array([[run[f"ms_per_token_{part}"] for part in ("rollout", "update")] for run in own])
            of[level] = parts.sum(1)
            means = [of[level].mean(), *parts.mean(0), of[level].mean()]
            rows.append([f"toy {task.split(',')[0]}, staleness {level}", *(f"{value:.4f}" for value in means)])
        told.append(f"{task.split(',')[0]} {shares(np.stack(interval(of[1] / of[16])))} times")
    return rows, "; ".join(told)


def hyperparameters() -> Table:
    """The table as data, with the numbers that follow from it."""
    derived = follow()
    rows = [[name, shown(dense), shown(moe)] for name, dense, moe in HYPERPARAMETERS]
    rows += [[f"*{name}*", *map(shown, pair)] for name, pair in derived.items()]
    sentence = (
        "Slanted rows follow from the others. A global batch is 512 prompts or 8,192 responses, and 16 ministeps of "
        "512 "
        f"sequences: the staleness of table main-results. {STEPS['7B']} steps of 512 prompts are {EPOCHS} passes "
        "over 33 "
        "whole batches, true of a set of 16,896 to 17,407 problems."
    )
    found = {name: np.array(pair, float) for name, pair in derived.items()}
    return Table("Table hyperparams", ("parameter", "7B dense", "30B MoE"), rows, sentence, found)


def follow() -> dict[str, tuple[float, float]]:
    """Responses, ministeps, GPUs and widths of both models, from the rows of the table."""

    def column(name: str) -> np.ndarray:
        return np.array(next(values for key, *values in HYPERPARAMETERS if key == name), dtype=float)

    prompts, group = column("data.train_batch_size (prompts)"), column("rollout.n (group size)")
    mini = column("actor.ppo_mini_batch_size (prompts)")
    numbers = {
        "responses per step": prompts * group,
        "ministeps per step (staleness)": prompts / mini,
        "sequences per ministep": mini * group,
        "GPUs": column("trainer.nnodes") * column("trainer.n_gpus_per_node"),
        "prompt + response length": column("data.max_prompt_length") + column("data.max_response_length"),
    }
    return {name: (float(pair[0]), float(pair[1])) for name, pair in numbers.items()}


def shown(value: str | float) -> str:
    """A number without a tail of zeros."""
    return value if isinstance(value, str) else f"{value:g}"
