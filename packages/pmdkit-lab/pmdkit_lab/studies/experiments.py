"""The paper's experiments in miniature: the runs of each. Budgets were set by run time, not by ranking."""

from dataclasses import dataclass
from typing import Any

from pmdkit.sweeps.grid import Options, Trial, variants

SEEDS = range(5)
BATCH = 32  # prompts per update, as in the paper: with 16 responses each, 512 sequences
STALE = 16  # updates per rollout batch, as in the paper
METHODS: dict[str, Options] = {
    "pmd-mean": {"objective.name": "pmd-mean", "objective.tau": 0.05},
    "pmd-part": {"objective.name": "pmd-part", "objective.tau": 0.05},
    "grpo": {"objective.name": "grpo"},
    "gspo": {"objective.name": "gspo"},
}
# options of all runs; pinned, so that stored results stay valid when a recipe on the shelf changes
MODEL: Options = {"model.dimension": 64, "model.heads": 4}
QUIET: Options = {"run.keep": 1, "run.checkpoint_every": 50, "schedule.lr": 1e-3, **MODEL}


@dataclass(frozen=True)
class Experiment:
    """A sweep with a name.

    Attributes:
        about: the claim of the paper that it examines.
        env: an environment of tier 2.
        settings: what differs between its curves, by label.
    """

    about: str
    env: str
    settings: dict[str, Options]

    def trials(self) -> list[Trial]:
        """The experiment's runs. A run shared by two experiments has one name, so in one folder it runs only once."""
        return variants("toy", self.env, list(self.settings.values()), SEEDS, QUIET)

    def record(self) -> dict[str, Any]:
        """The experiment's description, as stored in its record."""
        return {"about": self.about, "env": self.env, "settings": self.settings}


def schedule(updates: int, stale: int, group: int = 16, batch: int = BATCH) -> Options:
    """A schedule of `updates` updates of `batch` prompts, `stale` of them on each rollout batch."""
    return {
        "schedule.steps": updates // stale,
        "schedule.prompts": batch * stale,
        "schedule.ministeps": stale,
        "schedule.group": group,
    }


def methods(updates: int, stale: int, batch: int) -> dict[str, Options]:
    """Options of every method by name, with the same number of prompts, draws and updates.

    RLOO draws new rollouts for each update, the others for each `stale` ones, a divisor of `updates`.
    """
    common = {name: {**method, **schedule(updates, stale, batch=batch)} for name, method in METHODS.items()}
    return common | {"rloo": {"objective.name": "rloo", **schedule(updates, 1, batch=batch)}}


def over(method: str, key: str, values: tuple[Any, ...]) -> dict[str, Options]:
    """Settings of one method with one option swept, at the standard schedule."""
    short = key.rpartition(".")[2]
    return {f"{method} {short}={v}": {**METHODS[method], key: v, **schedule(UPDATES, STALE)} for v in values}


UPDATES = 320
TAUS = (0.005, 0.05, 0.5, 2.0)

EXPERIMENTS = {
    "training-curves": Experiment(
        "PMD-mean against PMD-part, GRPO, GSPO and on-policy RLOO at the same prompts, draws and updates.",
        "modular-sum",
        methods(UPDATES, STALE, BATCH),
    ),
    "tau": Experiment(
        "PMD-mean and PMD-part over four decades of temperature.",
        "modular-sum",
        over("pmd-mean", "objective.tau", TAUS) | over("pmd-part", "objective.tau", TAUS),
    ),
    "staleness": Experiment(
        "PMD-mean with 1, 4, 16, 64 updates per rollout batch, GRPO with 16, 64, at the same number of updates.",
        "modular-sum",
        {
            f"{method} {stale}": {**METHODS[method], **schedule(UPDATES, stale)}
            for method, levels in (("pmd-mean", (1, 4, 16, 64)), ("grpo", (16, 64)))
            for stale in levels
        },
    ),
    "sequence": Experiment(
        "The methods of training-curves on a task with a chain of thought of up to 15 tokens.",
        "parity",
        methods(120, 4, 16),
    ),
    "group-size": Experiment(
        "PMD-mean and PMD-part with 4, 16 and 64 draws per prompt, the number of draws per update held fixed.",
        "modular-sum",
        {
            f"{m} {g}": {**METHODS[m], **schedule(UPDATES, STALE, g, BATCH * 16 // g)}
            for m in ("pmd-mean", "pmd-part")
            for g in (4, 16, 64)
        },
    ),
}
