"""Planted bugs, which the harness has to see: what each is, and the runs it is planted in. How they are made is beside.

A bug is planted in a child before its run, also in the undisturbed run that the others are compared with: a program is
compared with itself.
"""

from collections.abc import Callable
from dataclasses import dataclass

from . import sabotage_checkpoints as checkpoints
from . import sabotage_resume as resume
from . import sabotage_rollouts as rollouts

TOY = ("toy", "toy-taught", "toy-rloo", "bandit")
LLM = ("llm", "llm-rloo", "llm-reference")
LAG = ("llm-lag", "llm-lag-2")


@dataclass(frozen=True)
class Bug:
    """A bug.

    Attributes:
        plant: puts it into this process for good.
        cases: the runs that it is looked for in.
        most: kills within which it has to be seen.
    """

    plant: Callable[[], None]
    cases: tuple[str, ...]
    most: int = 100


CONTROL = "no bug"

BUGS = {
    CONTROL: Bug(lambda: None, (*TOY, *LLM, *LAG), most=20),
    "checkpoint written in place": Bug(checkpoints.in_place, TOY),
    "old checkpoint deleted first": Bug(checkpoints.prune_first, TOY),
    "unfinished checkpoint is the newest": Bug(checkpoints.take_unfinished, TOY),
    "acknowledged before it is written": Bug(checkpoints.acknowledge_early, TOY),
    "temporary file outside of the run": Bug(checkpoints.write_outside, TOY),
    "optimizer of the checkpoint before": Bug(checkpoints.mix, TOY),
    "starts again from zero": Bug(resume.from_zero, TOY),
    "optimizer not restored": Bug(resume.no_optimizer, TOY),
    "learning rate's schedule starts again": Bug(resume.restart_schedule, TOY),
    "data position off by one": Bug(resume.shift_data, TOY),
    "a step is skipped": Bug(resume.skip_step, TOY),
    "seeds from a global generator": Bug(resume.global_seeds, TOY),
    "resumed run is seeded by the clock": Bug(resume.clock_seeds, TOY),
    "metrics not truncated": Bug(resume.keep_metrics, TOY),
    "metrics of the last step truncated": Bug(resume.cut_metrics, TOY),
    "metrics buffered": Bug(resume.buffer_metrics, TOY),
    "summary of the last process only": Bug(resume.short_summary, TOY),
    "lock survives its owner": Bug(resume.lasting_lock, TOY),
    "rollout of another step used again": Bug(rollouts.reuse, TOY),
    "pending rollouts lost": Bug(rollouts.lose_pending, LAG),
    "old log-probabilities recomputed after updates": Bug(rollouts.recompute_old, LAG),
    "evaluation done again": Bug(rollouts.evaluate_again, LLM),
    "evaluation counted twice": Bug(rollouts.count_twice, LLM),
    "verifier survives": Bug(rollouts.orphan, LLM),
}
