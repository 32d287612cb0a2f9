"""The front door: `train` for notebooks and scripts, `launch` beneath it for the command line, the Run they return."""

import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pmdkit.errors import ResumeRefused, UsageError
from pmdkit.objectives import Objective
from pmdkit.observe.console import Silent
from pmdkit.observe.folder import RunFolder, fresh, locked, make
from pmdkit.observe.trackers import check_trackers
from pmdkit.planning import adopt, build, compare, complete, describe, plan, stored_spec
from pmdkit.session import Display, Row, Setup, execute
from pmdkit.spec import Spec
from pmdkit.team import Team

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OURS = {"run.lock", "env.json", "checkpoints", "figures"}


class Run:
    """A finished run.

    Attributes:
        path: its folder.
        summary: the promised keys, see `summary.json`.
        metrics: one dictionary per step.
        policy: the trained policy; on the bandit [S, A] probabilities.
    """

    def __init__(self, path: str | Path, setup: Setup | None = None) -> None:
        self.folder = RunFolder(Path(path))
        self.path = self.folder.path
        self._setup = setup

    @cached_property
    def summary(self) -> Row:
        """What the run came to."""
        return self.folder.read_summary()

    @cached_property
    def metrics(self) -> list[Row]:
        """One dictionary per step."""
        return self.folder.read_metrics()

    @cached_property
    def spec(self) -> Spec:
        """The resolved configuration."""
        return stored_spec(self.folder)

    @property
    def policy(self) -> Any:
        """The trained policy, from the newest whole checkpoint where the run is not in memory; nothing is changed."""
        if self._setup is None:
            from pmdkit.observe import checkpoint

            setup = build(self.spec)[1]
            _, state, damaged = checkpoint.find_newest(self.folder.checkpoints)
            if not state:
                raise ResumeRefused(f"{self.path} has no checkpoint yet; train first, or --resume")
            for sentence in checkpoint.told(self.folder.checkpoints, damaged):
                warnings.warn(sentence, stacklevel=2)
            setup.learner.load_state_dict(state)
            self._setup = setup
        return self._setup.policy()

    def figure(self) -> "Figure":
        """Whether it learns, its steps beside the exact update, and what depends on the pass rate."""
        from pmdkit.figures.run import run_figure

        return run_figure(self)

    def __repr__(self) -> str:
        s = self.summary
        return f"Run({s['tier']} {s['env']}, {s['objective']}, {s['steps']} steps, {self.path})"


def train(
    objective: str | Objective = "pmd-mean",
    backend: str = "bandit",
    env: str = "needle",
    *,
    out: str | Path | None = None,
    resume: bool = False,
    options: Mapping[str, Any] | None = None,
    display: Display | None = None,
    **schedule: Any,
) -> Run:
    """Train a policy with an objective, on any backend; the same call from a bandit to a cluster.

    Args:
        objective: a name of OBJECTIVES, "my.py:MyLoss", or an objective.
        backend: "bandit", "toy" or "llm".
        env: a spec on the shelf (llm: a recipe), or the path of a .toml file.
        out: folder of the run, new or empty; by default the next number under runs/.
        resume: go on where the run in `out` stopped.
        options: other dotted keys of the spec, such as {"env.arms": 20, "objective.norm": "none"}.
        display: who watches; nobody by default.
        schedule: steps, prompts, group, ministeps, lr, seed and the other keys of [schedule] and [run].

    Returns:
        Run: .metrics .summary .policy .path .figure()
    """
    changes: dict[str, Any] = {}
    if isinstance(objective, str):
        changes["objective.name"] = objective
    else:
        changes = {f"objective.{key}": value for key, value in describe(objective).items()}
    changes |= dict(options or {}) | {key: value for key, value in schedule.items() if value is not None}
    given = None if isinstance(objective, str) else objective
    return launch(backend, env, changes, out, resume, display or Silent(), given)


def launch(
    tier: str,
    env: str,
    changes: Mapping[str, Any],
    out: str | Path | None,
    resume: bool,
    display: Display,
    given: Objective | None = None,
) -> Run:
    """Resolve, open the folder, run. What the command line and `train` share."""
    if resume:
        if out is None:
            raise UsageError("--resume got no run; give its folder with --out")
        folder = RunFolder(Path(out))
        refuse_links(folder.path)
        if folder.started:
            return go_on(folder, tier, env, changes, display, given)
        strangers = [p.name for p in folder.path.glob("*") if p.name not in OURS and not p.name.startswith(".")]
        if strangers:
            raise UsageError(f"output {out} is no run folder (it holds {strangers[0]}); nothing was changed")
    spec, objective = plan(tier, env, changes, given)
    check_trackers(spec.run.report_to)
    setup = build(spec, objective)[1]
    folder = opened(setup.team, lambda: RunFolder(make(Path(str(out)))) if resume else fresh(out, spec.label))
    perform(spec, objective, setup, folder, display)
    return Run(folder.path, setup)


def refuse_links(path: Path) -> None:
    """A folder that came from elsewhere may hold links, through which a run would write anywhere."""
    for inside in path.glob("*"):
        if inside.is_symlink() and not inside.resolve().is_relative_to(path.resolve()):
            raise UsageError(
                f"{inside} is a link out of the run's folder; nothing was changed: put a real folder there"
            )


def opened(team: Team, make_folder: Callable[[], RunFolder]) -> RunFolder:
    """The folder that the main process makes, in every process."""
    with team.together():
        return RunFolder(Path(team.tell(str(make_folder().path) if team.main else "")))


def perform(spec: Spec, objective: Objective, setup: Setup, folder: RunFolder, display: Display) -> Row:
    """Execute a run in its folder, which the main process holds and writes to; the others watch in silence."""
    main = setup.team.main
    lock: AbstractContextManager[None] = locked(folder) if main else nullcontext()
    with lock:
        if main:
            folder.begin(spec.record())
        return execute(spec, objective, setup, folder, display if main else Silent())


def go_on(
    folder: RunFolder,
    tier: str,
    env: str,
    changes: Mapping[str, Any],
    display: Display,
    given: Objective | None,
) -> Run:
    """Continue the run of a folder; nothing but a larger number of steps may differ."""
    stored = stored_spec(folder)
    name = Path(env).stem if env.endswith(".toml") else env
    if (stored.tier, stored.name) != (tier, name):
        raise ResumeRefused(
            f"{folder.path} holds a run of '{stored.tier} {stored.name}', not of '{tier} {name}'; give another --out"
        )
    spec = complete(adopt(stored, changes, given).override(dict(changes)), given)[0]
    differences = {key: (a, b) for key, a, b in compare(stored.record(), spec.record())}
    longer = differences.get("schedule.steps", (0, 0))
    if longer[1] > longer[0]:
        del differences["schedule.steps"]
    regrouped = [key for key in differences if key.startswith("parallel.")]
    for key in regrouped:  # who computes what changes sums in the last digits, and nothing else
        was, now = differences.pop(key)
        if key not in ("parallel.timeout", "parallel.restarts"):
            display.warn(f"{key} was {was} and is now {now}: the run does not end on the bits of an undisturbed one")
    if differences:
        told = ", ".join(f"{key} was {a} and is now {b}" for key, (a, b) in sorted(differences.items()))
        raise ResumeRefused(
            f"{folder.path} was started with other options: {told}; leave them out, or give another --out"
        )
    if folder.finished and folder.read_summary()["steps"] >= spec.schedule.steps:
        return Run(folder.path)
    objective, setup = build(spec, given)
    perform(spec, objective, setup, folder, display)
    return Run(folder.path, setup)
