r"""Weights in flight: an engine takes new weights between two tokens, and responses go on under them.

Each token keeps the version that drew it and its log-probability under that version, so the product over a response is
the probability of the mixture that wrote it, whichever tokens the weights changed at.

Source: PipelineRL (arXiv:2509.19128), which keeps the keys and values of the older weights.
"""

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch

from pmdkit.errors import ComponentDied, UsageError
from pmdkit.llm.engines.base import Responses
from pmdkit.llm.rollouts import EngineRollouts
from pmdkit.randomness import derive

P = TypeVar("P")
WeightChange = tuple[int, int, int]
"Weights of a request: rank of the process, tokens that its engine had written by then, version. The first is at 0."


class NewestPolicy(Generic[P]):
    """The policies that the trainer has offered to an engine in flight; used by both threads.

    Args:
        points: changes of weights to repeat, by the seed of a step; by default the newest policy is taken at once.
        rank: of this process.
    """

    def __init__(self, points: Mapping[int, Sequence[WeightChange]] | None = None, rank: int = 0) -> None:
        self.points, self.rank = points, rank
        self.offered: dict[int, P] = {}
        self.changed = threading.Condition()
        self.waiting_allowed = True

    def offer(self, version: int, policy: P) -> None:
        """Offer the policy of a version. Without points it replaces those that no engine has taken."""
        with self.changed:
            if self.points is None:
                self.offered.clear()
            self.offered[version] = policy
            self.changed.notify_all()

    def take(self, seed: int, written: int, has: int) -> tuple[int, P] | None:
        """The policy for the next token of a request that has `written` tokens; None: the engine's, of version `has`.

        Where a change is repeated that the trainer is not ready for, it waits.

        Raises:
            UsageError: a change cannot be repeated: this run saved or evaluated, or began, at another step.
        """
        with self.changed:
            wanted = max(self.offered, default=has)
            if self.points is not None:
                mine = [change for change in self.points[seed] if change[0] == self.rank and change[1] <= written]
                if not mine:
                    raise UsageError(
                        f"rollout.repeat_changes has no weights of process {self.rank} for its first token"
                    )
                wanted = max(version for _, _, version in mine)
                while self.waiting_allowed and wanted > max(self.offered, default=has):
                    self.changed.wait(0.1)
            if wanted != has and wanted not in self.offered:
                raise UsageError(
                    f"rollout.repeat_changes asks for weights of version {wanted} after {written} tokens, when the "
                    f"engine has {has} and the trainer offers {sorted(self.offered)}; expected a run that saves and "
                    "evaluates after the same steps as the one that is repeated"
                )
            policy = self.offered.get(wanted)
            self.offered = {version: one for version, one in self.offered.items() if version > wanted}
            return None if policy is None else (wanted, policy)

    def allow_waiting(self, allowed: bool) -> None:
        """Whether `take` may wait for the trainer: not while the trainer waits for the engine."""
        with self.changed:
            self.waiting_allowed = allowed
            self.changed.notify_all()


def read_changes(path: str, seed: int, steps: int) -> dict[int, list[WeightChange]]:
    """The `weight_changes` of a run's metrics.jsonl, by the seed of each of `steps` steps; `seed` is the run's.

    Raises:
        UsageError: a line is damaged, or has a version that the step could not have had.
    """
    found: dict[int, list[WeightChange]] = {}
    try:
        for line in Path(path).read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            step, changes = int(row["step"]), [tuple(map(int, change)) for change in row["weight_changes"]]
            if any(len(change) != 3 or change[2] >= step for change in changes):
                raise ValueError(f"step {step} has the changes {changes}")
            found[derive(seed, "rollout", step)] = changes  # type: ignore[assignment]  # three numbers each
        if len(found) < steps:
            raise ValueError(f"it has {len(found)} of {steps} steps")
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise UsageError(
            f"rollout.repeat_changes names {path}, which cannot be read: {problem!r}; expected the metrics.jsonl of a "
            "run with rollout.in_flight"
        ) from problem
    return found


def with_versions(
    rollouts: EngineRollouts, responses: Responses, oldest: int, now: int, max_age: int | None, too_old: str = "drop"
) -> EngineRollouts:
    """The rollouts with the version of each token, and what a token older than `max_age` entails.

    Args:
        oldest: version below which no engine may have drawn: that of the request.
        now: the trainer's version; a token of version v is now - v steps old.
        too_old: "drop": its response leaves the group. "mask": its loss has the weight 0, so the token counts as part
            of the prompt. The response stays in its group's baseline, and its length counts all tokens.

    Raises:
        ComponentDied: a token was drawn by weights older than the request, or by weights that do not exist yet.
    """
    versions = torch.full(rollouts.mask.shape, responses.version, dtype=torch.int32)
    if responses.versions is not None:
        versions = responses.versions.cpu()
    drawn = versions[rollouts.mask]
    if int(drawn.min()) < oldest or int(drawn.max()) > now:
        raise ComponentDied(
            f"the engine answered with weights of versions {int(drawn.min())} to {int(drawn.max())}; expected {oldest} "
            f"to {now}: restart it and go on with --resume"
        )
    late = rollouts.mask & (now - versions > (now if max_age is None else max_age))
    if too_old == "mask" and max_age is not None:
        return replace(rollouts, versions=versions, correction=(~late).double())
    mass = torch.where(late.any(1).view(rollouts.mass.shape), 0.0, rollouts.mass)
    whole = mass.sum(1, keepdim=True)
    return replace(rollouts, versions=versions, mass=mass / torch.where(whole > 0, whole, 1.0))


def age_columns(rollouts: EngineRollouts, step: int, updates: int) -> dict[str, Any]:
    """Columns of metrics.jsonl for a step whose weights changed in flight; `updates` are its ministeps.

    Tokens with a loss count: `staleness` is the mean number of updates from their weights to the step's last update,
    `oldest_token` the largest age in steps; both are null without such a token. `mixed_versions` counts the responses
    of several versions, `too_old` those with a token without a loss. `weight_changes`: process, tokens, version.
    """
    assert rollouts.versions is not None
    counts = rollouts.mask & (rollouts.mass > 0).view(-1, 1)
    if rollouts.correction is not None:  # of a bound on age
        counts = counts & (rollouts.correction > 0)
    stays = counts.any(1)
    mask, age = counts[stays], step - 1 - rollouts.versions[stays]  # [n, T] steps
    oldest, youngest = age.masked_fill(~mask, 0).amax(1), age.masked_fill(~mask, step).amin(1)
    return {
        "staleness": (1 + age[mask].double().mean().item()) * updates - 1 if len(age) else None,
        "oldest_token": int(oldest.max()) if len(age) else None,
        "mixed_versions": int((oldest > youngest).sum()),
        "too_old": int((counts != rollouts.mask).any(1).sum()),
        "weight_changes": [list(change) for change in rollouts.changes],
    }
