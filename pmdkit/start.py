"""Start a run, or go on with one: `train` for notebooks and scripts, `start` for the command line.

What may differ in a run that goes on is decided here. What it computes is in `fit`.
"""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

from pmdkit.errors import ResumeRefused, UsageError, short
from pmdkit.fit import Display, fit, trackers
from pmdkit.objectives import Objective
from pmdkit.observe.run_folder import RunFolder, make_writable, new_folder
from pmdkit.plugins import Trust, Trusted
from pmdkit.resolve import StoredRun, build, describe, read_run, read_spec, resolve_spec
from pmdkit.run import Run
from pmdkit.specs import LLMSpec, Spec
from pmdkit.specs.table import differences

RUN_FOLDER_NAMES = {"run.lock", "env.json", "inputs.json", "checkpoints", "figures"}
"Names that a run's folder may contain before the run begins."


class TrainOptions(TypedDict, total=False):
    """Keywords of `train`: the keys of [schedule] and [run], see `pmdkit.specs`, and tau of the objective.

    None is the same as leaving a key out. Any other key of the spec goes into `options`, by its dotted name.
    """

    tau: float | str | Mapping[str, Any] | None
    steps: int | None
    prompts: int | None
    group: int | None
    ministeps: int | None
    lr: float | None
    optimizer: str | None
    update: Literal["auto", "exact", "regression", "gradient"] | None
    passes: int | None
    seed: int | None
    threads: int | None
    keep: int | None
    checkpoint_every: int | None
    record: int | None
    max_time: float | None
    callbacks: list[str] | None
    report_to: list[Literal["tensorboard", "wandb", "trackio"]] | None


def train(
    objective: str | Objective = "pmd-mean",
    backend: str = "bandit",
    env: str | Path = "needle",
    *,
    out: str | Path | None = None,
    resume: bool = False,
    options: Mapping[str, Any] | None = None,
    display: Display | None = None,
    trust: Trust = (),
    accept_changes: bool = False,
    **schedule: Unpack[TrainOptions],
) -> Run:
    """Train a policy with an objective, on any backend; the same call from a bandit to a cluster.

    Args:
        objective: a name of OBJECTIVES, "my.py:MyLoss", or an objective.
        backend: "bandit", "toy" or "llm".
        env: a spec on the shelf (llm: a recipe), or the path of a .toml file.
        out: folder of the run, new or empty; by default the next number under runs/.
        resume: continue where the run in `out` stopped.
        options: other dotted keys of the spec, such as {"env.arms": 20, "objective.norm": "none"}.
        display: where progress is shown; by default in plain lines in an interactive notebook, elsewhere nowhere.
        trust: files such as "my.py" that a recipe or a stored run names and that may run; files named by another
            argument may run anyway.
        accept_changes: resume even if data, code or weights differ from those the run began with, and record it.
        schedule: steps, prompts, group, ministeps, lr, seed, tau and the other keys of `TrainOptions`.

    Returns:
        Run: .metrics .summary .policy .path .figure() .evaluate() .to_pandas()
    """
    if isinstance(objective, type) or not (isinstance(objective, str) or is_dataclass(objective)):
        wanted = "a name of pmdkit objectives, my.py:MyLoss, or an object such as PMDMean()"
        raise UsageError(f"objective is {short(objective)}; expected {wanted}")
    changes: dict[str, Any] = {}
    if isinstance(objective, str):
        changes["objective.name"] = objective
    else:
        changes = {f"objective.{key}": value for key, value in describe(objective).items()}
    given = None if isinstance(objective, str) else objective
    for key in options or {}:
        if given is not None and key.startswith("objective."):
            raise UsageError(f"options has {key}, but the objective is an object that has its own; set it there")
    changes |= dict(options or {}) | {key: value for key, value in schedule.items() if value is not None}
    if display is None and "IPython" in sys.modules:
        from pmdkit.console import default_display

        display = default_display()
    return start(str(backend), str(env), changes, out, resume, display or Display(), given, trust, accept_changes)


def start(
    tier: str,
    env: str,
    changes: Mapping[str, Any],
    out: str | Path | None,
    resume: bool,
    display: Display,
    given: Objective | None = None,
    trust: Trust = (),
    accept_changes: bool = False,
    before_build: Callable[[Spec], None] = lambda spec: None,
) -> Run:
    """Resolve the spec, open the folder, run. Arguments as for `resolve` and `train`.

    Args:
        before_build: called with the spec once it is checked, before a model is loaded or anything is written.
    """
    trusted, begun = Trusted.of(trust, changes), folder_to_resume(out) if resume else None
    stored = read_run(begun.path, trusted, accept_changes) if begun is not None else None
    if stored is not None:
        spec = resumed_spec(tier, env, stored, changes, given, display)
        if stored.folder.finished and stored.folder.read_summary()["steps"] >= spec.schedule.steps:
            return Run(stored.folder.path, trust=trusted)
    elif begun is not None and begun.started:
        raise UsageError(f"{begun.config} is not the configuration of a run; give another --out")
    else:
        spec = new_spec(tier, env, changes, given, trusted)
    before_build(spec)
    objective, backend = build(spec, given)
    group = backend.process_group
    for key, (value, why) in backend.decisions.items():
        spec = spec.override({key: value})
        if group.is_main_process:
            display.note(why)
    with group.error_scope():  # the main process makes the folder for all
        path = ""
        if group.is_main_process:
            path = str(new_folder(out, spec.label).path if begun is None else make_writable(begun.path))
        folder = RunFolder(Path(group.broadcast_object(path)))
    fit(spec, objective, backend, folder, display, accept_changes and stored is not None)
    return Run(folder.path, backend, trust=trusted)


def new_spec(tier: str, env: str, changes: Mapping[str, Any], given: Objective | None, trusted: Trusted) -> Spec:
    """The spec of a new run, which this machine can start."""
    spec = resolve_spec(read_spec(tier, env, trusted), changes, given)[0]
    if spec.run.threads > (cores := os.cpu_count() or 1):
        raise UsageError(f"run.threads is {spec.run.threads} on {cores} cores; expected at most one for each core")
    if spec.run.report_to:
        trackers(spec).check(spec.run.report_to)
    return spec


def resumed_spec(
    tier: str, env: str, stored: StoredRun, changes: Mapping[str, Any], given: Objective | None, display: Display
) -> Spec:
    """The spec of a stored run with the changes; ResumeRefused if a resume may not make them, or for another run."""
    before, name = stored.spec, Path(env).stem if env.endswith(".toml") else env
    if (before.tier, before.name) != (tier, name):
        found = f"{stored.folder.path} holds a run of '{before.tier} {before.name}'"
        raise ResumeRefused(f"{found}, not of '{tier} {name}'; give another --out")
    spec = resolve_spec(before, changes, given)[0]
    if isinstance(before, LLMSpec) and isinstance(spec, LLMSpec) and spec.model.checkpointing == "auto":
        spec = spec.override({"model.checkpointing": before.model.checkpointing})  # it was decided once
    check_same_run(before, spec, stored.folder, display)
    return spec


def folder_to_resume(out: str | Path | None) -> RunFolder:
    """The folder of a run, or of one that was stopped before it had written anything."""
    if out is None:
        raise UsageError("--resume got no run; give its folder with --out")
    folder = RunFolder(Path(out))
    strangers = [p.name for p in folder.path.glob("*") if p.name not in RUN_FOLDER_NAMES and not p.name.startswith(".")]
    if strangers and not folder.started:
        raise UsageError(f"output {out} is not a run folder (it holds {strangers[0]}); nothing was changed")
    return folder


def check_same_run(stored: Spec, spec: Spec, folder: RunFolder, display: Display) -> None:
    """Refuse to continue a run with other options; only more steps, limits and [parallel] may differ."""
    refused = []
    for key, (was, now) in differences(stored.record(), spec.record()).items():
        if key in ("run.max_time", "remote.url"):  # a server that moved still has its states
            continue
        if key == "schedule.steps" and now > was:
            # the learning rate of every step depends on the number of steps, unless it is constant
            kind = spec.update.lr_scheduler_type if isinstance(spec, LLMSpec) else "constant"
            if kind != "constant":
                why = f"with update.lr_scheduler_type '{kind}' it changes every learning rate"
                remedy = "start a new run from the last checkpoint with --set model.path=..."
                raise ResumeRefused(f"schedule.steps was {was} and is now {now}: {why}; {remedy}")
        elif key.startswith("parallel."):  # how work is split changes sums in the last digits, and nothing else
            if key != "parallel.timeout":
                display.warn(f"{key} was {was} and is now {now}: not the same bits as an uninterrupted run")
        else:
            refused.append(f"{key} was {was} and is now {now}")
    if refused:
        what = f"{folder.path} was started with other options: {', '.join(refused)}"
        raise ResumeRefused(f"{what}; leave them out, or give another --out")
