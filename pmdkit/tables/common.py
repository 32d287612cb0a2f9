"""The tables of a spec that every tier has. Fields are the keys; the text under a field is its help."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Strict(BaseModel):
    """A table of a spec: its fields are the keys it may have, and a value is taken as it is or not at all.

    A number in quotes, true for 1, or 3.0 for 3 is more likely a slip than a wish. An integer where a number is wanted
    is fine.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class ScheduleTable(Strict):
    """[schedule]: how long, how many, how stale, and how the policy is fitted."""

    steps: int = 50
    "Rollout batches in the whole run."
    prompts: int | None = None
    "Prompts per step; by default every context of the environment."
    group: int | None = None
    "Responses per prompt; without it the full support is enumerated and the update is exact."
    ministeps: int = 1
    "Updates per rollout batch."
    lr: float = 0.05
    "Learning rate of gradient updates."
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    "Optimizer of gradient updates."
    update: Literal["auto", "exact", "regression", "gradient"] = "auto"
    "exact: the population solution in closed form. regression: Newton on the full expectation. gradient: optimizer."
    passes: int = 1
    "Optimizer steps on each ministep; many passes on the full support show where gradient descent fails."


class RunTable(Strict):
    """[run]: what does not change the mathematics."""

    seed: int = 0
    "Every draw is derived from it."
    threads: int = 1
    "CPU threads, fixed so that a resumed run ends on the same bits."
    keep: int = 2
    "Checkpoints kept."
    checkpoint_every: int = 1
    "Steps between checkpoints; the last step always writes one."
    record: int = Field(default=0, ge=0)
    "Keep every k-th step in rollouts/step-N.safetensors for `pmdkit replay`; 0 for never."
    report_to: list[Literal["tensorboard", "wandb", "trackio"]] = []
    "Also send metrics there; metrics.jsonl is always written."
