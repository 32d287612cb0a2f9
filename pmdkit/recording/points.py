"""The policies of a recorded step at which a loss can be asked for, and the batch of an objective there.

`old` is the policy that drew the rows, `seen` the one each row's own update started from, `after` the one after the
step. Nothing between them is made up: what was not recorded is a sentence.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pmdkit.errors import UsageError
from pmdkit.learner import Rollouts
from pmdkit.loop import without_equal_groups
from pmdkit.objectives import Groups, Objective
from pmdkit.objectives.credit import credit
from pmdkit.objectives.traits import traits
from pmdkit.objectives.vocabulary import Batch
from pmdkit.recording.format import Recording

POINTS = ("old", "seen", "after")
MEANING = {"old": "that drew the rows", "seen": "before each update", "after": "after the step"}
"What follows the words `the policy`."


@dataclass(frozen=True)
class Point:
    """Log-probabilities of all rows under one policy.

    Attributes:
        logp: [N, T], or [N, 1] sums over the response. Zero where unknown.
        known: [N] boolean, rows that were recorded here.
        sums: whether only sums were recorded.
    """

    logp: Tensor
    known: Tensor
    sums: bool


class NotRecorded(Exception):
    """What was asked for is not in the recording; the sentence says what is missing. Caught where it is told."""


def rollouts_of(recording: Recording) -> Rollouts:
    """The rollouts of the step."""
    about = recording.about
    return Rollouts(
        prompts=recording["prompts"],
        responses=recording["responses"],
        logp_old=recording["logp_old"],
        mask=recording.mask,
        mass=recording["mass"],
        sampled=about["sampled"],
        seed=about["seed"],
        version=about["version"],
        width=about["width"],
        logp_ref=recording.get("logp_ref"),
        correction=recording.get("correction"),
    )


def batch_of(objective: Objective, recording: Recording) -> Batch:
    """Credit as the loop gives it: the batch of the whole step at pi_old.

    Raises:
        UsageError: draws without peers, or an advantage that is not one number per response.
    """
    rollouts = rollouts_of(recording)
    groups = Groups(recording["reward"], recording["mass"], rollouts.sampled)
    if rollouts.sampled and groups.reward.shape[1] < 2 and traits(objective).needs_peers:
        raise UsageError(
            f"step {recording.about['step']} has 1 response per prompt, and {type(objective).__name__} compares a "
            "response with others to its prompt; replay an objective without a group baseline, such as dro, or record "
            "with --group 2 or more"
        )
    advantage = objective.advantage(groups)
    if advantage.shape != groups.reward.shape or bool(torch.isnan(advantage).any()):
        what = "NaN entries" if advantage.shape == groups.reward.shape else f"shape {list(advantage.shape)}"
        raise UsageError(
            f"advantage of {type(objective).__name__} has {what}; expected {list(groups.reward.shape)} finite numbers, "
            "one per response"
        )
    batch = credit(objective, groups, rollouts.logp_old, rollouts.mask, rollouts.logp_ref, rollouts.width)
    batch = replace(batch, correction=rollouts.correction)
    return without_equal_groups(batch, groups) if recording.about["drop_equal_groups"] else batch


def point(recording: Recording, name: str) -> Point:
    """The log-probabilities of a point.

    Raises:
        NotRecorded: there are none.
    """
    logp = recording.get(f"logp_{name}")
    if logp is None:
        why = {
            "seen": "no update scored a row where the recorder could see it",
            "after": "nothing scored the rows after the step",
        }
        raise NotRecorded(f"not recorded: {why.get(name, 'the file lacks it')}")
    rows, sums = len(recording.mask), logp.ndim == 1
    mask = torch.ones(len(logp), 1, dtype=torch.bool) if sums else recording.mask[: len(logp)]
    logp = logp[:, None] if sums else logp
    known = torch.zeros(rows, dtype=torch.bool)
    known[: len(logp)] = ~(torch.isnan(logp) & mask).any(1)
    whole = logp.new_zeros(rows, logp.shape[1])
    whole[: len(logp)] = torch.where(mask & known[: len(logp), None], logp, 0.0)
    return Point(whole, known, sums)


def batch_at(objective: Objective, batch: Batch, where: Point) -> Batch:
    """The rows of a batch that were recorded at a point, with the log-probabilities there.

    Raises:
        NotRecorded: no row that counts is there, or a part of a group is missing that the loss compares.
    """
    counts = (batch.weight != 0) & batch.mask.any(1)
    if bool(counts.any()) and not bool((counts & where.known).any()):
        raise NotRecorded("not recorded: no row that counts under this objective was scored here")
    if where.sums:
        batch = batch.folded()
    part = replace(batch, logp=where.logp)
    if traits(objective).whole_groups and cut_through(batch.group[counts], where.known[counts]):
        raise NotRecorded("not recorded: the loss compares whole groups, and parts of groups were scored here")
    part = part[where.known]
    if where.sums and objective.loss(part).ndim == 2:
        raise NotRecorded("not recorded by token: sums per response are, and this loss is per token")
    return part


def cut_through(group: Tensor, kept: Tensor) -> bool:
    """Whether some group has rows on both sides."""
    return bool(set(group[kept].tolist()) & set(group[~kept].tolist()))
