"""The parts of a reproduction that train: sweeps of toy transformers, the starter, a bandit, adaptive temperatures.

The runs of a sweep are separate processes, resumed where they stopped; the paper's training figures are drawn from
them.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pmdkit import objectives
from pmdkit.errors import PmdkitError
from pmdkit.figures.style import Drawing, method_title
from pmdkit.observe import gauge
from pmdkit.run import Run
from pmdkit.start import train
from pmdkit.stats import MeanInterval, interval_text, mean_interval, paired_difference, paired_text
from pmdkit.sweeps import grid, record
from pmdkit.sweeps.run import sweep
from pmdkit_lab.figures import FIGURES, draw, scores, tables, training_curves
from pmdkit_lab.reproduce.part import PartContext, Piece, Sheet, keep
from pmdkit_lab.studies import adaptive, experiments, pictures
from pmdkit_lab.studies.settings import by_setting, summary_values

KEYS = ("pass_rate", "log_ratio_min", "response_length")


def experiment(name: str) -> Callable[[PartContext], list[Piece]]:
    """The function of a part that runs an experiment and draws it."""

    def make(context: PartContext) -> list[Piece]:
        chosen = experiments.EXPERIMENTS[name]
        run_all(context, name, chosen.trials(), chosen.record())
        drawing = pictures.draw(name, context.sweeps)
        return [keep(drawing, context.folder, name, chosen.about, "toy", f"{len(experiments.SEEDS)} seeds")]

    return make


def run_all(context: PartContext, name: str, trials: list[grid.Trial], about: dict[str, Any]) -> dict[str, Any]:
    """Finish the runs in the folder that all sweeps share; a failed run is an error."""
    result = sweep(trials, context.sweeps, name, about, launcher=context.launcher, resume=True, log=context.log)
    failed = [run for run in result["runs"] if run["state"] == "failed"]
    if failed:
        raise PmdkitError(f"{len(failed)} of {len(result['runs'])} runs of {name} failed: {failed[0]['reason']}")
    return result


def redrawn(names: tuple[str, ...], sources: tuple[str, ...]) -> Callable[[PartContext], list[Piece]]:
    """The function of a part that draws training figures of the paper from the runs of these experiments."""

    def make(context: PartContext) -> list[Piece]:
        runs = {name: curves(context, name) for name in sources}
        about = (
            f"{len(experiments.SEEDS)} seeds; the text below was written for the stored runs, but its numbers come "
            "from these"
        )
        return [
            keep(draw(name, runs), context.folder, name, FIGURES[name].about.rstrip("."), "toy", about)
            for name in names
        ]

    return make


def curves(context: PartContext, name: str) -> dict[str, Any]:
    """An experiment's runs in the form that the training figures use: lists per seed, by setting."""
    found = record.read(context.sweeps / f"{name}.json")
    settings = {label: in_lists(runs, KEYS) for label, runs in by_setting(found).items()}
    return {"env": found["env"], "settings": settings}


def in_lists(runs: Sequence[dict[str, Any]], keys: tuple[str, ...]) -> dict[str, Any]:
    """The runs of one setting of a record, as lists over seeds."""
    return {
        "prompts": [step * runs[0]["options"]["schedule.prompts"] for step in runs[0]["curve"]["step"]],
        "seeds": [run["seed"] for run in runs],
        "last": [run["summary"]["pass_rate_last"] for run in runs],
        **{key: [run["curve"][key] for run in runs] for key in keys},
    }


# Runs that take seconds: every objective on a bandit from draws, and PMD-mean on a small transformer.

SEEDS = (0, 1, 2)
SEED_RANGE = f"{len(SEEDS)} seeds, {SEEDS[0]} to {SEEDS[-1]}"
BANDIT: dict[str, Any] = {"steps": 100, "group": 16, "ministeps": 4}
TOY: dict[str, Any] = {"steps": 100}


def train_in_folder(
    context: PartContext, objective: str, tier: str, env: str, seed: int, schedule: dict[str, Any]
) -> Run:
    """A run in the folder of the reproduction; an existing run is not repeated."""
    place = context.runs / f"{tier}-{env}-{objective}-{seed}"
    rare = {"run.checkpoint_every": schedule["steps"], "run.keep": 1}
    return train(objective, tier, env, out=place, resume=True, options=rare, seed=seed, **schedule)


def bandit(context: PartContext) -> list[Piece]:
    """Every objective on 64 problems with real pass rates, with the same draws of prompts and 16 responses each."""
    curves, last = {}, {}
    for name in objectives.OBJECTIVES:
        context.log(f"{name} on the bandit")
        runs = [train_in_folder(context, name, "bandit", "pass-rates", seed, BANDIT) for seed in SEEDS]
        curves[name] = np.array([[row["pass_rate"] for row in each.metrics] for each in runs])
        last[name] = np.array([each.summary["pass_rate_last"] for each in runs])
        first = runs[0].summary["pass_rate_first"]
    base = curves["pmd-mean"].mean(1)
    rows = []
    for name, seeds in curves.items():
        against = "-" if name == "pmd-mean" else paired_text(paired_difference(base, seeds.mean(1)), ".3f")
        means = (interval_text(mean_interval(values), ".3f") for values in (last[name], seeds.mean(1)))
        rows.append([name, *means, against])
    see = (
        f"64 problems with real pass rates, {first:.2f} on average before training; {BANDIT['steps']} batches of "
        f"{BANDIT['group']} draws per problem, {BANDIT['ministeps']} updates each. Every objective has its default "
        "options, so a difference may be one of temperature or length rule rather than of kind. Brackets: 95 % "
        "intervals over seeds."
    )
    heads = ["objective", "pass rate after", "mean over training", "minus PMD-mean, paired by seed"]
    return [Sheet("bandit-runs", "Every objective on the bandit pass-rates", "toy", SEED_RANGE, heads, rows, see)]


def toy(context: PartContext) -> list[Piece]:
    """PMD-mean teaches a small transformer to add modulo 10; the run of one seed compared with the theory."""
    runs = []
    for seed in SEEDS:
        context.log(f"toy modular-sum, seed {seed}")
        runs.append(train_in_folder(context, "pmd-mean", "toy", "modular-sum", seed, TOY))
    ends = {
        end: mean_interval(np.array([each.summary[f"pass_rate_{end}"] for each in runs])) for end in ("first", "last")
    }
    picture = runs[0].figure()
    sentence = (
        f"Seed {SEEDS[0]} of a transformer that learns from rewards alone: log-ratios measured after each step beside "
        "those of the exact update at the same pass rate. An optimizer step goes part of that way. Evaluated over "
        f"{SEED_RANGE}: {interval_text(ends['first'], '.3f')} before, {interval_text(ends['last'], '.3f')} after "
        f"{TOY['steps']} batches."
    )
    drawing = Drawing(picture, f"{picture.get_label()} {sentence}", sentence, {})
    rows = []
    for bucket in gauge.merge(row["gauge"] for each in runs for row in each.metrics if row["gauge"]):
        cells = [gauge.label(bucket["bucket"]), str(bucket["prompts"])]
        for kind in ("neg", "pos"):
            measured, predicted = bucket[f"log_ratio_{kind}"], bucket[f"theory_log_ratio_{kind}"]
            cells += [three_digits(measured), three_digits(predicted), reached_share(measured, predicted)]
        rows.append(cells)
    heads = ["pass rate", "prompt steps", "wrong (nats)", "theory", "reached", "right (nats)", "theory", "reached"]
    see = (
        "Mean log-ratio of wrong and of right responses after a step, by the pass rate before it, beside the exact "
        "update; reached is the measured one divided by the exact one."
    )
    return [
        keep(drawing, context.folder, "toy-run", "One run compared with the theory", "toy", SEED_RANGE),
        Sheet("toy-gauge", "Log-ratios of these runs by pass rate", "toy", SEED_RANGE, heads, rows, see),
    ]


def three_digits(value: float | None) -> str:
    """Three significant digits, or a dash for None."""
    return "-" if value is None else f"{value:.3g}"


def reached_share(measured: float | None, predicted: float | None) -> str:
    """The share of the exact update that the step reached."""
    if measured is None or predicted is None or abs(predicted) < 1e-12:
        return "-"
    return f"{100 * measured / predicted:.2g} %"


# The starter: a tiny Qwen2, built and taught on the spot, then trained with PMD-mean, PMD-part and GRPO. With the same
# seed all three start from the same model, so that they are paired.

RECIPE = "starter"
STARTER_METHODS = {name: experiments.METHODS[name] for name in training_curves.STARTER_METHODS}
# prompts as in the recipe: the axis of the picture is computed from the options of a run
STARTER_OPTIONS: grid.Options = {"schedule.prompts": 16, "run.checkpoint_every": 25, "run.keep": 1}
STARTER_ABOUT = "PMD-mean, PMD-part and GRPO on a tiny language model."


def starter(context: PartContext) -> list[Piece]:
    """The starter trained with three objectives: its figure, and the results in numbers, paired by seed."""
    trials = grid.variants("llm", RECIPE, list(STARTER_METHODS.values()), SEEDS, STARTER_OPTIONS)
    described = {"about": STARTER_ABOUT, "env": RECIPE, "settings": STARTER_METHODS}
    settings = by_setting(run_all(context, "starter", trials, described))
    lists = {name: in_lists(found, ("pass_rate", "response_length")) for name, found in settings.items()}
    name = "fig7-starter"  # replaces the one from stored runs
    drawing = draw(name, {RECIPE: {"env": RECIPE, "settings": lists}})
    base = summary_values(settings["pmd-mean"], "pass_rate_last")
    rows = []
    for name, runs in settings.items():
        last = summary_values(runs, "pass_rate_last")
        against = "-" if name == "pmd-mean" else paired_text(paired_difference(base, last), ".3f")
        ends = [
            mean_interval(summary_values(runs, key)) for key in ("pass_rate_first", "pass_rate_last", "pass_rate_mean")
        ]
        low = float(np.mean(summary_values(runs, "log_ratio_min")))
        rows.append([method_title(name), *(interval_text(end, ".3f") for end in ends), against, f"{low:.1f}"])
    heads = [
        "method", "held-out pass rate before", "after", "mean over training", "after, minus PMD-mean",
        "smallest log-ratio (nats)",
    ]  # fmt: skip
    see = "Brackets: 95 % intervals over seeds. The smallest log-ratio is that over all steps, averaged over seeds."
    return [
        keep(drawing, context.folder, name, FIGURES[name].about.rstrip("."), "starter", SEED_RANGE),
        Sheet("starter-runs", "The starter in numbers", "starter", SEED_RANGE, heads, rows, see),
    ]


# The study of adaptive temperatures, one part for each tier.

ADAPTIVE_COLUMNS = {  # columns of the study's tables
    "auc": "area under the curve",
    "final": "final pass rate",
    "drop": "worst drop in one step",
    "dead": "dead prompts (share)",
}


def adaptive_study(tier: str) -> Callable[[PartContext], list[Piece]]:
    """The function of a part that runs a tier of the study, "bandit", "toy" or "starter": every arm against the tuned
    fixed tau."""

    def make(context: PartContext) -> list[Piece]:
        place = context.out / "adaptive" / tier
        found = adaptive.study(tier, place, launcher=context.launcher, resume=True, log=context.log)
        return [adaptive_sheet(tier, cell, rows) for cell, rows in found["tables"].items()]

    return make


def adaptive_sheet(tier: str, cell: str, rows: list[dict[str, Any]]) -> Sheet:
    """One setting as a table: a row for each arm, with differences to the fixed tau paired by seed."""

    def ends(cell: dict[str, Any]) -> str:
        return interval_text(MeanInterval(**cell, count=rows[0]["seeds"]), ".3f")

    cells = []
    for row in rows:
        against = "-" if "auc_gain" not in row else ends(row["auc_gain"])
        chance = "-" if row["p"] is None else f"{row['p']:.2g}"
        cells.append([row["arm"], *(ends(row[key]) for key in ADAPTIVE_COLUMNS), against, chance])
    heads = ["arm", *ADAPTIVE_COLUMNS.values(), "area, minus the fixed tau's", "p (Holm)"]
    see = (
        "Every arm is tuned over its values on separate seeds, then run at the best value on fresh ones, paired with "
        "the tuned fixed tau. Brackets: 95 % intervals over seeds; p is adjusted for the number of arms."
    )
    title, name = f"Adaptive tau, {tier}: {cell}", re.sub(r"[\W_]+", "-", cell)
    about = f"{rows[0]['seeds']} seeds"
    return Sheet(f"adaptive-{tier}-{name}", title, "starter" if tier == "starter" else "toy", about, heads, cells, see)


# The paper's differences between methods, compared with those of toy runs.

COMPARED_EXPERIMENTS = {"training-curves": "modular-sum", "sequence": "parity"}  # experiment: task
BASELINES = {"GRPO": "grpo", "GSPO": "gspo", "on-policy": "rloo"}  # the paper's name: ours


def differences_to_baselines() -> Sheet:
    """PMD-mean minus each baseline, in percentage points: the paper's two models, and stored toy transformers."""
    found = {name: training_curves.stored()[name]["settings"] for name in COMPARED_EXPERIMENTS}
    seeds = len(next(iter(found.values()))["pmd-mean"]["seeds"])
    rows = []
    for paper, ours in BASELINES.items():
        cells = [paper_differences(model, paper) for model in tables.NAMED]
        for settings in found.values():
            pair = [100 * np.array(settings[name]["last"]) for name in (ours, "pmd-mean")]
            cells.append(interval_text(paired_difference(*pair).difference, ".1f"))
        rows.append([f"PMD-mean minus {paper}", *cells])
    heads = ["percentage points", *(f"paper, {model}: AIME 24, AIME 25" for model in tables.NAMED)]
    heads += [
        f"toy {training_curves.TASKS[task].split(',')[0]}, after training" for task in COMPARED_EXPERIMENTS.values()
    ]
    see = (
        "The paper has one run of each; ours are means over same-seed pairs, with 95 % intervals over seeds. Other "
        "tasks, other models, another amount of training: signs that agree are a hint; where they differ, nothing is "
        "refuted. On-policy is RLOO, which makes new rollouts for each update; the paper has it for the 7B model."
    )
    title = "Differences between methods, the paper's and ours"
    return Sheet("tab-beside", title, "stored", f"{seeds} seeds", heads, rows, see)


def paper_differences(model: str, other: str) -> str:
    """PMD-mean at the temperature named in the text minus another method, on both sets of problems."""
    rows = (row for row in (*tables.SCORES, *tables.GSPO) if (row.model, row.method) == (model, other))
    if (base := next(rows, None)) is None:
        return "-"
    return ", ".join(f"{a - b:+.2f}" for a, b in zip(scores.named(model).pair, base.pair, strict=True))
