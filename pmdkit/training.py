"""Entry points: `train` for notebooks and scripts, `launch` for the command line, and the Run they return.

Below them, how a spec and some changes become a run that can start: `plan` resolves every option, `build` makes the
backend.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cached_property
from html import escape
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, Unpack, overload

from pydantic import ValidationError

from pmdkit import plugins
from pmdkit.errors import ResumeRefused, UsageError, first_line, short, unknown
from pmdkit.extras import need
from pmdkit.objectives import TAUS, Objective, build_objective, objective_name, regulariser
from pmdkit.observe import checkpoint, console, inputs, trackers
from pmdkit.observe.run_folder import RunFolder, make_writable, new_folder
from pmdkit.specs import SPECS, LLMSpec, Spec, from_record
from pmdkit.specs.find import SHELVES, names
from pmdkit.trainer import Backend, Display, Row, fit

if TYPE_CHECKING:
    import pandas
    import pyarrow
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Trust = str | Sequence[str]
"Files such as my.py, or my.py:MyClass, whose code may run."
AnySpec = TypeVar("AnySpec", bound=Spec)
BACKENDS = {"bandit": "pmdkit.bandit", "toy": "pmdkit.toy", "llm": "pmdkit.llm"}
OURS = {"run.lock", "env.json", "inputs.json", "checkpoints", "figures"}
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
    optimizer: Literal["adam", "adamw", "sgd"] | None
    update: Literal["auto", "exact", "regression", "gradient"] | None
    passes: int | None
    seed: int | None
    threads: int | None
    keep: int | None
    checkpoint_every: int | None
    record: int | None
    max_time: float | None
    profile: int | None
    callbacks: list[str] | None
    report_to: list[Literal["tensorboard", "wandb", "trackio"]] | None


class Run:
    """A run, finished or not: the contents of its folder, and what it trained.

    Args:
        path: its folder.
        backend: of a run that is in memory.
        trust: files such as "my.py" that the run names and whose code you trust; other code does not run.

    Attributes:
        path: its folder.
        summary: the promised keys, see `summary.json`.
        metrics: one dictionary per step.
        policy: the trained policy; on the bandit [S, A] probabilities.
    """

    def __init__(self, path: str | Path, backend: Backend | None = None, *, trust: Trust = ()) -> None:
        self.folder = RunFolder(Path(path))
        self.trust = trust
        self.path = self.folder.path
        self._backend = backend

    @cached_property
    def summary(self) -> Row:
        """The summary of the run."""
        return self.folder.read_summary()

    @cached_property
    def metrics(self) -> list[Row]:
        """One dictionary per step."""
        return self.folder.read_metrics()

    @cached_property
    def spec(self) -> Spec:
        """The resolved configuration."""
        return stored_spec(self.folder, self.trust)

    @property
    def policy(self) -> Any:
        """The trained policy, from the newest whole checkpoint if the run is not in memory; nothing is changed."""
        if self._backend is None:
            backend = build(self.spec)[1]
            _, state, damaged = checkpoint.find_newest(self.folder.checkpoints)
            if not state:
                raise ResumeRefused(f"{self.path} has no checkpoint yet; train first, or --resume")
            for sentence in checkpoint.damage_warnings(self.folder.checkpoints, damaged):
                warnings.warn(sentence, stacklevel=2)
            backend.learner.load_state_dict(state)
            self._backend = backend
        return self._backend.policy()

    @property
    def model(self) -> Any:
        """The trained model: pmdkit's transformer for a toy run, a transformers model for a language model.

        A language model that is not in memory is loaded from the newest whole checkpoint, on the CPU and in float32.
        """
        tier = self.spec.tier
        if tier == "bandit":
            raise UsageError(f"{self.path} is a bandit run, a table without a model; its probabilities are run.policy")
        return self._language_model[0] if tier == "llm" and self._backend is None else self.policy

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of `model`, one of transformers; for a toy run one word is one token."""
        if self.spec.tier == "bandit":
            raise UsageError(f"{self.path} is a bandit run, whose arms have no text; expected a toy or llm run")
        if self.spec.tier == "llm":
            return self._language_model[1]
        need("transformers", "a tokenizer")
        from transformers import AutoTokenizer

        from pmdkit.envs.tokens import make_tokens
        from pmdkit.toy.hf import EOS, write_tokenizer

        with TemporaryDirectory() as folder:
            write_tokenizer(make_tokens(self.spec.env).vocabulary, EOS, Path(folder))
            return AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)

    @cached_property
    def _language_model(self) -> tuple[Any, Any]:
        """Model and tokenizer of the newest whole checkpoint of a language model."""
        from pmdkit.evaluation.checkpoint_source import find_source
        from pmdkit.llm.model import load_model

        plugins.trust(self.trust)
        source = find_source(self.path)
        for sentence in source.warnings:
            warnings.warn(sentence, stacklevel=4)
        return load_model(source.place)

    def evaluate(
        self,
        k: int = 32,
        *,
        problems: int | None = None,
        seed: int = 0,
        data: str | None = None,
        out: str | Path | None = None,
        resume: bool = False,
    ) -> Row:
        """avg@k, pass@k and maj@k of the newest checkpoint, with intervals: what `pmdkit eval RUN --json` prints.

        Args:
            k: draws that count as one attempt.
            problems: maximum number; by default as in the run's own evaluation.
            seed: of the draws.
            data: for a language model: "held-out", "aime24", "aime25", or a file.
            out: for a language model: new folder for responses and verdicts; by default the next number under runs/.
            resume: continue the evaluation in `out`.
        """
        plugins.trust(self.trust)
        if self.spec.tier == "llm":
            from pmdkit.evaluation import language
            from pmdkit.evaluation.checkpoint_source import find_source

            config = language.EvalConfig(data, k, problems, seed, None, None, None)
            place = None if out is None else Path(out)
            return language.evaluate(find_source(self.path), config, place, resume, console.default_display())
        from pmdkit.evaluation import sampling

        for name, value in (("data", data), ("out", out)):
            if value is not None:
                raise UsageError(f"{name} is for language models, and this is a {self.spec.tier} run; leave it out")
        spec, backend, step, damage = sampling.load_policy(self.path)
        for sentence in damage:
            warnings.warn(sentence, stacklevel=2)
        return sampling.evaluate(spec, backend, step, k, problems, seed)

    def to_arrow(self) -> "pyarrow.Table":
        """The metrics as an Arrow table, one row per step; the gauge is a column of lists."""
        arrow = need("pyarrow", "to_arrow")
        columns = dict.fromkeys(key for row in self.metrics for key in row)
        return arrow.table({key: [row.get(key) for row in self.metrics] for key in columns})

    def to_pandas(self) -> "pandas.DataFrame":
        """The metrics as a pandas data frame, one row per step."""
        return need("pandas", "to_pandas").DataFrame(self.metrics)

    def figure(self, panel: str | None = None, *, ax: "Axes | None" = None) -> "Figure":
        """Plot whether it learns, its steps beside the exact update, and what depends on the pass rate.

        Args:
            panel: one of "progress", "log-ratios", "by-pass-rate", "brake", "belief", "movement", "lengths" and
                "mismatch" alone; by default all for which the run has numbers.
            ax: draw one panel here, "progress" if none is named, and return its figure.
        """
        from pmdkit.figures.run import panel_figure, run_figure

        return run_figure(self) if panel is None and ax is None else panel_figure(self, panel or "progress", ax)

    def __repr__(self) -> str:
        """One line. It never raises: debuggers and notebooks show it when something is already wrong."""
        try:
            return f"Run({', '.join(self._description())}, {self.path})"
        except Exception as problem:
            return f"Run({self.path}: {first_line(problem)})"

    def _description(self) -> list[str]:
        """What ran, and how far."""
        if not self.folder.started and not self.folder.finished:
            raise UsageError("no run was started here" if self.path.is_dir() else "there is no such folder")
        if self.folder.finished:
            s = self.folder.read_summary()
            return [f"{s['tier']} {s['env']}", s["objective"], f"{s['steps']} steps"]
        config = self.folder.read_config()
        done = len(self.folder.read_metrics()) if self.folder.metrics.exists() else 0
        steps = f"{done} of {config['schedule']['steps']} steps, not finished"
        return [f"{config['tier']} {config['name']}", config["objective"]["name"], steps]

    def _repr_html_(self) -> str:
        """The same as a small table, with the pass rate or reward of every step as a line of bars."""
        try:
            what, objective, steps = self._description()
            rows = [("objective", objective), ("steps", steps)]
            metrics = self.folder.read_metrics() if self.folder.metrics.exists() else []
            key = "pass_rate" if any(row["pass_rate"] is not None for row in metrics) else "reward_mean"
            values = [row[key] for row in metrics if row[key] is not None]
            if values:
                curve = f"{values[0]:.4f} {console.sparkline(values, 40)} {values[-1]:.4f}"
                rows.append((key.replace("_", " "), curve))
            rows.append(("folder", str(self.path)))
        except Exception:
            return f"<code>{escape(repr(self))}</code>"
        cells = "".join(f"<tr><th style='text-align:left'>{escape(a)}</th><td>{escape(b)}</td></tr>" for a, b in rows)
        return f"<table><caption>Run: {escape(what)}</caption>{cells}</table>"


def evaluate_run(path: str, trust: Sequence[str], **options: Any) -> Row:
    """Call `Run.evaluate` on a folder; a launcher calls this to evaluate several runs."""
    return Run(path, trust=trust).evaluate(**options)


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
        display: where progress is shown; by default a live panel in an interactive notebook, elsewhere nowhere.
        trust: files such as "my.py" that a recipe or a stored run names and that may run; files named by another
            argument may run anyway.
        accept_changes: resume even if data, code or weights differ from those the run began with, and record it.
        schedule: steps, prompts, group, ministeps, lr, seed, tau and the other keys of `TrainOptions`.

    Returns:
        Run: .metrics .summary .policy .model .path .figure() .evaluate() .to_pandas()
    """
    check_arguments(objective, backend, env)
    changes: dict[str, Any] = {}
    if isinstance(objective, str):
        changes["objective.name"] = objective
    else:
        changes = {f"objective.{key}": value for key, value in describe(objective).items()}
    changes |= dict(options or {}) | {key: value for key, value in schedule.items() if value is not None}
    given = None if isinstance(objective, str) else objective
    watching = display or console.default_display()
    return launch(backend, str(env), changes, out, resume, watching, given, trust, accept_changes)


def check_arguments(objective: Any, backend: Any, env: Any) -> None:
    """Catch mistakes in the first three arguments of `train`, which would otherwise fail far from the call.

    Raises:
        UsageError: a class where an object is expected, an environment where an objective is expected, and so on.
    """
    if isinstance(objective, type):
        name = objective.__name__
        raise UsageError(f"objective is the class {name}; expected an object of it: {name}(), or {name}(tau=0.05)")
    homes = [tier for tier in SHELVES if isinstance(objective, str) and objective in names(tier)]
    if homes:
        raise UsageError(
            f"objective is '{objective}', which is an environment; expected an objective, such as "
            f'train("pmd-mean", "{homes[0]}", "{objective}")'
        )
    if not isinstance(objective, str) and not is_dataclass(objective):
        raise UsageError(
            f"objective is {short(objective)}; expected a name of pmdkit objectives, my.py:MyLoss, or an object such "
            "as PMDMean(tau=0.05)"
        )
    for name, value, kinds, wanted in (
        ("backend", backend, str, "bandit, toy or llm"),
        ("env", env, str | Path, "a name of pmdkit envs, or the path of a .toml file"),
    ):
        if not isinstance(value, kinds):
            raise UsageError(f"{name} is {short(value)}; expected {wanted}")


def launch(
    tier: str,
    env: str,
    changes: Mapping[str, Any],
    out: str | Path | None,
    resume: bool,
    display: Display,
    given: Objective | None = None,
    trust: Trust = (),
    accept_changes: bool = False,
) -> Run:
    """Resolve the spec, open the folder, run. Shared by the command line and `train`."""
    plugins.trust(trust)
    if resume:
        if out is None:
            raise UsageError("--resume got no run; give its folder with --out")
        folder = RunFolder(Path(out))
        refuse_links(folder.path)
        if folder.started:
            return resume_run(folder, tier, env, changes, display, given, trust, accept_changes)
        strangers = [p.name for p in folder.path.glob("*") if p.name not in OURS and not p.name.startswith(".")]
        if strangers:
            raise UsageError(f"output {out} is not a run folder (it holds {strangers[0]}); nothing was changed")
    spec, objective = plan(tier, env, changes, given)
    trackers.check_trackers(spec.run.report_to)
    backend = build(spec, objective)[1]
    group = backend.process_group
    with group.error_scope():  # the main process makes the folder for all
        path = ""
        if group.is_main_process:
            path = str(make_writable(Path(str(out))) if resume else new_folder(out, spec.label).path)
        folder = RunFolder(Path(group.broadcast_object(path)))
    fit(spec, objective, backend, folder, display)
    return Run(folder.path, backend)


def resume_run(
    folder: RunFolder,
    tier: str,
    env: str,
    changes: Mapping[str, Any],
    display: Display,
    given: Objective | None,
    trust: Trust,
    accept_changes: bool,
) -> Run:
    """Continue the run in a folder; only more steps, limits, profiling and [parallel] may differ."""
    stored = spec_to_resume(folder, changes, trust, accept_changes)
    name = Path(env).stem if env.endswith(".toml") else env
    if (stored.tier, stored.name) != (tier, name):
        raise ResumeRefused(
            f"{folder.path} holds a run of '{stored.tier} {stored.name}', not of '{tier} {name}'; give another --out"
        )
    spec = resolve_spec(with_objective(stored, changes, given).override(dict(changes)), given)[0]
    differences = {key: (a, b) for key, a, b in compare(stored.record(), spec.record())}
    for key in ("run.max_time", "run.profile"):  # they change no results
        differences.pop(key, None)
    longer = differences.get("schedule.steps", (0, 0))
    if longer[1] > longer[0]:
        refuse_longer(spec, *longer)
        del differences["schedule.steps"]
    regrouped = [key for key in differences if key.startswith("parallel.")]
    for key in regrouped:  # how work is split changes sums in the last digits, and nothing else
        was, now = differences.pop(key)
        if key not in ("parallel.timeout", "parallel.restarts"):
            display.warn(f"{key} was {was} and is now {now}: the run will not match an uninterrupted one bit for bit")
    if differences:
        changed = ", ".join(f"{key} was {a} and is now {b}" for key, (a, b) in sorted(differences.items()))
        raise ResumeRefused(
            f"{folder.path} was started with other options: {changed}; leave them out, or give another --out"
        )
    if folder.finished and folder.read_summary()["steps"] >= spec.schedule.steps:
        return Run(folder.path)
    objective, backend = build(spec, given)
    fit(spec, objective, backend, folder, display, accept_changes)
    return Run(folder.path, backend)


def refuse_longer(spec: Spec, was: int, now: int) -> None:
    """Refuse more steps if the learning rate falls to 0 by the last one: it would differ in every step."""
    kind = spec.update.lr_scheduler_type if isinstance(spec, LLMSpec) else "constant"
    if kind != "constant":
        raise ResumeRefused(
            f"schedule.steps was {was} and is now {now} with update.lr_scheduler_type '{kind}': the learning rate of "
            "every step depends on it; start a new run from the last checkpoint with --set model.path=..."
        )


def refuse_links(path: Path) -> None:
    """Refuse links out of the folder: in a folder from elsewhere, a run could write anywhere through them."""
    for inside in path.glob("*"):
        if inside.is_symlink() and not inside.resolve().is_relative_to(path.resolve()):
            raise UsageError(
                f"{inside} is a link out of the run's folder; nothing was changed: put a real folder there"
            )


@overload
def plan(
    tier: Literal["llm"], env: str, changes: Mapping[str, Any], given: Objective | None = None
) -> tuple[LLMSpec, Objective]: ...


@overload
def plan(tier: str, env: str, changes: Mapping[str, Any], given: Objective | None = None) -> tuple[Spec, Objective]: ...


def plan(tier: str, env: str, changes: Mapping[str, Any], given: Objective | None = None) -> tuple[Spec, Objective]:
    """The resolved spec of a new run, every option explicit, and its objective."""
    if tier not in BACKENDS:
        raise UsageError(unknown("backend", tier, BACKENDS))
    plugins.trust(changes)
    return resolve_spec(with_objective(SPECS[tier].read(env), changes, given).override(dict(changes)), given)


def with_objective(spec: AnySpec, changes: Mapping[str, Any], given: Objective | None = None) -> AnySpec:
    """The spec with the objective of `changes`: another objective keeps the environment's tau, if it takes one."""
    known = named(spec.objective)
    name = named({"name": changes.get("objective.name", known)})
    if name == known:
        return spec
    options = field_names(given or build_objective(name))
    kept = {key: value for key, value in spec.objective.items() if key == "tau" and key in options}
    return spec.model_copy(update={"objective": {"name": name, **kept}})


def resolve_spec(spec: Spec, given: Objective | None = None) -> tuple[Spec, Objective]:
    """The spec with the objective's defaults written out and the backend's choices made."""
    for file in plugins.code_files(spec.record()):
        plugins.require_named(file)
    objective = given or objective_of(spec)
    table = describe(objective, named(spec.objective))
    spec = spec.model_copy(update={"objective": table})
    resolved: Spec = import_module(BACKENDS[spec.tier]).resolve_config(spec, objective)
    return resolved, objective


def build(spec: Spec, given: Objective | None = None) -> tuple[Objective, Backend]:
    """Objective and backend of a resolved spec."""
    objective = given or objective_of(spec)
    return objective, import_module(BACKENDS[spec.tier]).make_backend(spec, objective)


def objective_of(spec: Spec) -> Objective:
    """The objective of a spec; the error for a misspelt option gives its dotted name."""
    name = named(spec.objective)
    options = {key: value for key, value in spec.objective.items() if key != "name"}
    known = ["name", *dict.fromkeys([*field_names(build_objective(name)), *regulariser.OPTIONS])]
    for key in options:
        if key not in known:
            raise UsageError(unknown("option", f"objective.{key}", (f"objective.{option}" for option in known)))
    return build_objective(name, **options)


def named(table: Mapping[str, Any]) -> str:
    """The name in an [objective] table."""
    name = table.get("name")
    if not isinstance(name, str):
        got = "not set" if name is None else short(name)
        raise UsageError(f"objective.name is {got}; expected one of pmdkit objectives, or your own as file.py:Class")
    return name


def field_names(objective: Objective) -> list[str]:
    """The options of an objective."""
    return [field.name for field in fields(objective)]  # type: ignore[arg-type]


def describe(objective: Objective, name: str | None = None) -> dict[str, Any]:
    """An objective as a table: its name and every field, temperature rules as {"rule": name, ...}."""
    table: dict[str, Any] = {"name": name or objective_name(objective)}
    for field in fields(objective):  # type: ignore[arg-type]
        value = getattr(objective, field.name)
        if is_dataclass(value) and not isinstance(value, type):
            rules: dict[Any, str] = {factory: rule for rule, factory in TAUS.items()}
            table[field.name] = {
                "rule": rules.get(type(value), type(value).__name__),
                **{f.name: plain(getattr(value, f.name)) for f in fields(value)},
            }
        else:
            table[field.name] = plain(value)
    return table


def plain(value: Any) -> Any:
    """A value that survives a round trip through JSON; a function is recorded by its name."""
    if isinstance(value, tuple):
        return list(value)
    return getattr(value, "__qualname__", repr(value)) if callable(value) else value


def stored_spec(folder: RunFolder, trust: Trust = ()) -> Spec:
    """The configuration that a run folder was started with.

    Code that it names runs only if the user names it too, here or elsewhere, and only if it is unchanged.
    """
    try:
        spec = from_record(folder.read_config())
    except (ValidationError, TypeError) as problem:
        raise UsageError(f"{folder.config} is not the configuration of a run; give another --out") from problem
    plugins.trust(trust)
    named = [file for file in plugins.code_files(spec.record()) if file.resolve() in plugins.TRUSTED]
    digests = inputs.read_inputs(folder)["digests"] if named else {}
    for file in named:
        plugins.trust(str(file), sha256=digests.get(f"{inputs.CODE} {file}"))
    return spec


def spec_to_resume(folder: RunFolder, changes: Mapping[str, Any], trust: Trust, accept_changes: bool) -> Spec:
    """The stored configuration; its code must be named again and unchanged, or its changes accepted."""
    plugins.trust(changes)
    spec = stored_spec(folder, trust)
    files = list(plugins.code_files(spec.record()))
    for file in files:
        plugins.require_named(file)  # before its digest is compared: the user has to fix this first
    if accept_changes:
        plugins.trust([str(file) for file in files])  # whatever they hold now
    elif files:
        inputs.refuse_changes(folder, inputs.read_inputs(folder)["digests"], inputs.code_inputs(spec.record()))
    return spec


def compare(old: Any, new: Any, key: str = "") -> list[tuple[str, Any, Any]]:
    """Dotted keys that differ, with both values."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = sorted(old.keys() | new.keys())
        return [d for k in keys for d in compare(old.get(k), new.get(k), f"{key}.{k}" if key else k)]
    return [] if old == new else [(key, old, new)]
