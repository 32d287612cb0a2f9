"""The callback that reports episodes whose environment failed."""

from pmdkit.fit import RunContext, StepResult, TrainerCallback
from pmdkit.llm.contrib.turns import FailedEpisode


class EnvironmentCallback(TrainerCallback):
    """Warns of each step in which an environment failed, with the first reason."""

    def on_step_end(self, run: RunContext, result: StepResult) -> None:
        """Look for failed episodes."""
        episodes = result.rollouts.episodes or ()
        reasons = [episode.reason for episode in episodes if isinstance(episode, FailedEpisode)]
        if reasons and run.backend.process_group.is_main_process:
            run.display.warn(
                f"step {result.step}: {len(reasons)} of {len(episodes)} episodes have no reward, because the "
                f"environment failed; the first: {reasons[0]}"
            )
