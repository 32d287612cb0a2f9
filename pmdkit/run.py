"""A run, finished or not: the contents of its folder, and the trained policy."""

import warnings
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pmdkit import console
from pmdkit.errors import UsageError, first_line
from pmdkit.extras import need
from pmdkit.fit import Backend, Row
from pmdkit.observe.run_folder import RunFolder
from pmdkit.plugins import Trust, Trusted
from pmdkit.resolve import StoredRun, read_run
from pmdkit.specs import Spec

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Run:
    """A run, finished or not: the contents of its folder, and the trained policy.

    Args:
        path: its folder.
        backend: of a run that is in memory.
        trust: files such as "my.py" that the run names and whose code you trust; other code does not run.

    Attributes:
        summary: what `--json` prints, such as pass_rate_last; UsageError before the run is finished.
        metrics: one dictionary per step.
        policy: the trained policy; on the bandit [S, A] probabilities, else the model.
    """

    def __init__(self, path: str | Path, backend: Backend | None = None, *, trust: Trust = ()) -> None:
        self.folder = RunFolder(Path(path))
        self.trusted = Trusted.of(trust)
        self.path = self.folder.path
        self._backend = backend

    @cached_property
    def summary(self) -> Row:
        """The summary of the finished run."""
        return self.folder.read_summary()

    @cached_property
    def metrics(self) -> list[Row]:
        """One dictionary per step."""
        return self.folder.read_metrics()

    @cached_property
    def stored(self) -> StoredRun:
        """Its folder and its resolved configuration, read once."""
        if (run := read_run(self.path, self.trusted)) is None:
            what = "holds no config.json of a run" if self.path.is_dir() else "is not a folder"
            raise UsageError(f"{self.path} {what}; expected the folder of a run, its --out")
        return run

    @property
    def spec(self) -> Spec:
        """The resolved configuration."""
        return self.stored.spec

    @property
    def policy(self) -> Any:
        """The trained policy, from the newest whole checkpoint if the run is not in memory; nothing is changed."""
        if self._backend is None:
            self._backend = self.load_policy()[0]
        return self._backend.policy()

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

        The arguments are the options of `pmdkit eval`; data, out and resume are for language models.
        """
        if self.spec.tier == "llm":
            from pmdkit.evaluation import language
            from pmdkit.evaluation.checkpoint_source import source_of_run

            config = language.EvalConfig(data, k, problems, seed, None, None, None)
            place, source = None if out is None else Path(out), source_of_run(self.stored, self.path)
            return language.evaluate(source, config, place, resume, console.default_display())
        from pmdkit.evaluation import bandit_and_toy

        for name, value in (("data", data), ("out", out), ("resume", resume or None)):
            if value is not None:
                raise UsageError(f"{name} is for language models, and this is a {self.spec.tier} run; leave it out")
        backend, step = self.load_policy()
        return bandit_and_toy.evaluate(self.spec, backend, step, k, problems, seed)

    def load_policy(self) -> tuple[Backend, int]:
        """A backend with the policy of the newest whole checkpoint, and its step."""
        from pmdkit.evaluation import bandit_and_toy

        backend, step, damage = bandit_and_toy.load_policy(self.stored)
        for sentence in damage:
            warnings.warn(sentence, stacklevel=3)
        return backend, step

    def to_pandas(self) -> "pandas.DataFrame":
        """The metrics as a pandas data frame, one row per step."""
        return need("pandas", "to_pandas").DataFrame(self.metrics)

    def figure(self, panel: str | None = None, *, ax: "Axes | None" = None) -> "Figure":
        """Plot whether it learns, its steps beside the exact update, and what depends on the pass rate.

        Args:
            panel: draw only this one: "progress", "log-ratios", "by-pass-rate", "brake", "belief", "movement",
                "lengths", "mismatch" or "own". By default all for which the run has numbers.
            ax: draw one panel here, "progress" if none is named, and return its figure.
        """
        from pmdkit.figures.run import panel_figure, run_figure

        if panel is None and ax is None:
            return run_figure(self.folder, self.spec)
        return panel_figure(self.folder, panel or "progress", ax)

    def __repr__(self) -> str:
        """The run and its progress. Never raises: debuggers show it when something is already wrong."""
        try:
            if self.folder.finished:
                s = self.folder.read_summary()
                return f"Run({s['tier']} {s['env']}, {s['objective']}, {s['steps']} steps, {self.path})"
            config = self.folder.read_config()
            done = len(self.folder.read_metrics()) if self.folder.metrics.exists() else 0
            steps = f"{done} of {config['schedule']['steps']} steps, not finished"
            return f"Run({config['tier']} {config['name']}, {config['objective']['name']}, {steps}, {self.path})"
        except Exception as problem:
            return f"Run({self.path}: {first_line(problem)})"
