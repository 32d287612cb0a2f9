"""Loss and gradient of an objective with respect to recorded log-probabilities, at a recorded policy.

The gradient of the parameters is this one times the network's Jacobian, which no recording contains. Of the policies,
`old` drew the rows, `seen` is the one that each row's own update started from, `after` the one after the step. Nothing
in between is interpolated: what was not recorded is reported as missing, with the reason.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pmdkit.errors import UsageError
from pmdkit.loop import Rollouts, without_equal_groups
from pmdkit.objectives import Batch, Groups, Objective, credit, parts, total, traits
from pmdkit.recording import Recording

POINTS = ("old", "seen", "after")
MEANING = {"old": "that drew the rows", "seen": "before each update", "after": "after the step"}
"Descriptions to be read after the words `the policy`."


class NotRecorded(Exception):
    """The recording lacks what was requested; the message says what is missing. Caught where it is displayed."""


@dataclass(frozen=True)
class PolicyPoint:
    """Log-probabilities of all rows under one policy.

    Attributes:
        logp: [N, T], or [N, 1] sums over the response. Zero where unknown.
        known: [N] boolean, rows that were recorded at this policy.
        sums: whether only sums were recorded.
    """

    logp: Tensor
    known: Tensor
    sums: bool


@dataclass(frozen=True)
class Gradient:
    """The gradient of an objective with respect to the log-probabilities of a step.

    Attributes:
        losses: loss of each ministep.
        values: [N, T] d loss / d logp of each token, weights included; 0 where there is no gradient.
        moving: like `values`; for arms on the full support, without the part that normalisation cancels, that is, the
            derivative with respect to their free logits.
        counted: [N, T] boolean, tokens whose response has an advantage and a weight.
        rows: number of responses that count and are known here, and of those that count.
    """

    losses: list[float]
    values: Tensor
    moving: Tensor
    counted: Tensor
    rows: tuple[int, int]

    @property
    def coefficient(self) -> Tensor:
        """[N] sum over the tokens of a response."""
        return self.values.sum(1)


def gradient(
    objective: Objective, batch: Batch, where: PolicyPoint, ministeps: int, size: int, sampled: bool = True
) -> Gradient:
    """Loss and gradient at a point, each ministep averaging over its own prompts.

    The batch is that of the whole step, with `size` responses per prompt: draws or, unless `sampled`, the full
    support.

    Raises:
        NotRecorded: see `batch_at`.
        UsageError: the loss has another shape, or it or its gradient is not finite.
    """
    prompts = len(batch.group) // size
    rows_of = torch.arange(len(batch.group)).view(prompts, size)
    values = torch.zeros(batch.mask.shape, dtype=torch.float64)
    counts = (batch.weight != 0) & batch.mask.any(1)
    batch_at(objective, batch, where)  # raises if nothing was recorded here
    losses = []
    for part in parts(prompts, ministeps):
        rows = rows_of[part].flatten()
        # each part averages over its own prompts, as in `cut`
        weighed = replace(batch[rows], weight=batch.weight[rows] * (prompts * size / len(rows)))
        here = PolicyPoint(where.logp[rows], where.known[rows], where.sums)
        if not bool((counts[rows] & here.known).any()):
            losses.append(0.0)
            continue
        known = batch_at(objective, weighed, here)
        logp = known.logp.detach().requires_grad_()
        with torch.enable_grad():
            loss = total(objective, replace(known, logp=logp))
        (pull,) = torch.autograd.grad(loss, logp, allow_unused=True)
        losses.append(loss.item())
        if pull is not None:
            kept = rows[here.known]
            values[kept] = torch.where(batch.mask[kept], pull.double(), 0.0)  # a sum: the same for each token
        if not bool(torch.isfinite(loss) & values[rows].isfinite().all()):
            raise UsageError(
                f"the loss of {type(objective).__name__} is {loss.item()} on this step; expected a finite number, and "
                "a finite gradient: raise tau, or correct the loss"
            )
    counted = batch.mask & (counts & (batch.advantage != 0) & where.known)[:, None]
    moving = values
    if not sampled and values.shape[1] == 1:  # arms, whose support is the rows of each group: by their logits
        pull = values.view(-1, size)
        probs = where.logp.double().exp().view(-1, size)
        moving = (pull - pull.sum(1, keepdim=True) * probs).view(-1, 1)
    return Gradient(losses, values, moving, counted, (int((counts & where.known).sum()), int(counts.sum())))


def point(recording: Recording, name: str) -> PolicyPoint:
    """The log-probabilities under one recorded policy.

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
    return PolicyPoint(whole, known, sums)


def log_ratio(recording: Recording, where: PolicyPoint) -> Tensor:
    """[N] log pi/pi_old of the responses, float64, NaN where a row was not recorded."""
    old = torch.where(recording.mask, recording["logp_old"], 0.0)
    if where.sums:
        moved = where.logp[:, 0].double() - old.double().sum(1)
    else:
        moved = torch.where(recording.mask, where.logp - old, 0.0).double().sum(1)
    return torch.where(where.known, moved, torch.nan)


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
    """Credit as the training loop assigns it: the batch of the whole step at pi_old.

    Raises:
        ValueError: draws without peers, or an advantage that is not one number per response.
    """
    rollouts = rollouts_of(recording)
    groups = Groups(recording["reward"], recording["mass"], rollouts.sampled)
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


def batch_at(objective: Objective, batch: Batch, where: PolicyPoint) -> Batch:
    """The rows of a batch that were recorded at one policy, with the log-probabilities there.

    Raises:
        NotRecorded: no row that counts was recorded there, part of a group that the loss compares is missing, or only
            sums were recorded and the loss is per token.
    """
    counts = (batch.weight != 0) & batch.mask.any(1)
    if bool(counts.any()) and not bool((counts & where.known).any()):
        raise NotRecorded("not recorded: no row that counts under this objective was scored here")
    if where.sums:
        batch = batch.folded()
    part = replace(batch, logp=where.logp)
    there, missing = batch.group[counts & where.known], batch.group[counts & ~where.known]
    if traits(objective).whole_groups and set(there.tolist()) & set(missing.tolist()):
        raise NotRecorded("not recorded: the loss compares whole groups, and parts of groups were scored here")
    part = part[where.known]
    if where.sums and objective.loss(part).ndim == 2:
        raise NotRecorded("not recorded by token: sums per response are, and this loss is per token")
    return part
