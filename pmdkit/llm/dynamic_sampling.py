"""Dynamic sampling: groups whose rewards are all equal are replaced by groups of other prompts before the update.

Such groups teach nothing in a policy gradient, only pull back to pi_old in PMD. Source: arXiv:2503.14476 (DAPO); the
bound is verl's `max_num_gen_batches`. Differs: each round asks only for as many prompts as need replacing, not for
another whole batch, and groups that are not replaced after the last round stay as they are.
"""

from collections.abc import Iterator
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pmdkit.llm.learner import EngineLearner
from pmdkit.llm.rollouts import EngineRollouts
from pmdkit.llm.task import MathTask
from pmdkit.loop import Learner, Rollouts, Schedule, Stream, Task, graded, inline
from pmdkit.objectives.baselines import rewards_differ
from pmdkit.randomness import derive, generator


def dynamic_sampling(most: int) -> Stream:
    """A stream that rolls out up to `most` times per step with the same policy.

    Its prompts and draws are a function of (seed, step, round) and of the rewards, so a resumed run repeats them, and
    several processes agree on them, since they have the same rewards. The loop asks the task again for the rewards of
    the final groups; verdicts that a worker gave are read from the journal.
    """

    def stream(learner: Learner, task: Task, schedule: Schedule, start: int) -> Iterator[tuple[int, Rollouts]]:
        assert isinstance(learner, EngineLearner)
        assert isinstance(task, MathTask)
        for step, rollouts in inline(learner, task, schedule, start):
            assert isinstance(rollouts, EngineRollouts)
            yield step, resampled(learner, task, schedule, step, rollouts, most)

    return stream


def resampled(
    learner: EngineLearner, task: MathTask, schedule: Schedule, step: int, rollouts: EngineRollouts, most: int
) -> EngineRollouts:
    """The rollouts of a step, with as many groups of differing rewards as `most` generations give."""
    began = perf_counter()
    informative = rewards_differ(graded(task.reward(rollouts), rollouts))
    asked = rollouts.prompts.tolist()
    batches, replaced, dropped = 1, 0, 0
    while batches < most and not bool(informative.all()):
        places = (~informative).nonzero()[:, 0]
        free = np.setdiff1d(task.problems.train, np.array(asked))  # problems that the step has not used yet
        if not len(free):
            break
        order = generator(task.seed, "resampled", step, batches).permutation(len(free))
        prompts = torch.from_numpy(free[order[: len(places)]])
        more = learner.rollout(prompts, schedule.group, derive(schedule.seed, "rollout", step, "resampled", batches))
        good = rewards_differ(graded(task.reward(more), more)).nonzero()[:, 0][: len(places)]
        filled = places[: len(good)]
        rows, others = rows_of(filled, rollouts), rows_of(good, more)
        dropped += int(more.mask.sum()) - int(more.mask[others].sum()) + int(rollouts.mask[rows].sum())
        rollouts = put_groups(rollouts, filled, more, good)
        informative[filled] = True
        asked += prompts.tolist()
        batches, replaced = batches + 1, replaced + len(good)
    # the other measurements remain those of the first batch, which was a whole step's
    counts = {"gen_batches": batches, "resampled_groups": replaced, "dropped_tokens": dropped}
    seconds = rollouts.seconds + perf_counter() - began
    return replace(rollouts, seconds=seconds, measured={**rollouts.measured, **counts})


def rows_of(groups: Tensor, rollouts: Rollouts) -> Tensor:
    """The rows of some groups."""
    size = rollouts.mass.shape[1]
    return (groups[:, None] * size + torch.arange(size)).flatten()


def put_groups(rollouts: EngineRollouts, places: Tensor, more: EngineRollouts, taken: Tensor) -> EngineRollouts:
    """A copy of the rollouts whose groups `places` [n] are the groups `taken` [n] of `more`."""
    rows, others = rows_of(places, rollouts), rows_of(taken, more)
    changed: dict[str, Any] = {
        name: put(getattr(rollouts, name), rows, getattr(more, name), others)
        for name in ("responses", "logp_old", "mask", "logp_ref", "correction", "logp_engine")
        if getattr(rollouts, name) is not None
    }
    prompts = rollouts.prompts.clone()
    prompts[places] = more.prompts[taken]
    if rollouts.episodes is not None and more.episodes is not None:
        episodes = dict(enumerate(rollouts.episodes))
        episodes |= {row: more.episodes[other] for row, other in zip(rows.tolist(), others.tolist(), strict=True)}
        changed["episodes"] = list(episodes.values())
    return replace(rollouts, prompts=prompts, **changed)


def put(table: Tensor, rows: Tensor, other: Tensor, taken: Tensor) -> Tensor:
    """[N, T] or [N], `rows` replaced by rows `taken` of `other`; the narrower one is zero-padded on the right."""
    if table.ndim == 1:
        result = table.clone()
    else:
        width = max(table.shape[1], other.shape[1])
        result = torch.nn.functional.pad(table, (0, width - table.shape[1]))
        other = torch.nn.functional.pad(other, (0, width - other.shape[1]))
    result[rows] = other[taken].to(result.dtype)
    return result
