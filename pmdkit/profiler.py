"""Profile steps of a run with torch: a trace for Perfetto or chrome://tracing, and a table of calls."""

from pathlib import Path

import torch

from pmdkit.fit import RunContext, StepResult, TrainerCallback
from pmdkit.observe import files

ROWS = 30  # rows of the table


class ProfilerCallback(TrainerCallback):
    """Profiles steps after the first one of this process, which loads and compiles what later steps reuse.

    Writes `profile/steps-A-B.json` and a table beside it, where A to B are the profiled steps. A run that ends earlier
    writes what it has. Profiling changes the timings of the run, not its numbers.

    Args:
        steps: how many to profile, at least 1.
    """

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.profile: torch.profiler.profile | None = None
        self.watched: list[int] = []
        self.done = False

    def on_step_end(self, run: RunContext, result: StepResult) -> None:
        """Start after the first step, stop after the last profiled one. Only the main process is profiled."""
        if self.done or not run.backend.process_group.is_main_process:
            return
        if self.profile is not None:
            self.watched.append(result.step)
            if len(self.watched) == self.steps:
                self.write(run)
        elif result.step < run.backend.schedule.steps:
            activities = [torch.profiler.ProfilerActivity.CPU]
            if torch.cuda.is_available():
                activities.append(torch.profiler.ProfilerActivity.CUDA)
            self.profile = torch.profiler.profile(activities=activities)
            self.profile.start()

    def on_train_end(self, run: RunContext, error: BaseException | None) -> None:
        """Write what has been profiled so far."""
        if self.profile is not None and not self.done:
            self.write(run)

    def write(self, run: RunContext) -> None:
        """Write the trace and the table of the steps profiled so far."""
        assert self.profile is not None
        self.done = True
        self.profile.stop()
        if not self.watched:
            return
        place = run.folder.path / "profile" / f"steps-{self.watched[0]}-{self.watched[-1]}.json"
        files.make_folder(place.parent)
        part = Path(f"{place}.part")
        self.profile.export_chrome_trace(str(part))
        part.rename(place)
        by = "self_device_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
        table = self.profile.key_averages().table(sort_by=by, row_limit=ROWS)
        files.replace(place.with_suffix(".txt"), table.encode())
        run.display.note(f"steps {self.watched[0]} to {self.watched[-1]} were profiled: {place}")
