"""Golden vectors: recorded losses and gradients that every implementation of an objective has to give.

`vectors.json` holds the cases, docs/use/golden.md the protocol; another framework needs these two alone. Here they are
run through the paths of pmdkit, and through a function of your own.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import resources, util
from importlib.metadata import entry_points
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from pmdkit.errors import EnvironmentLacks
from pmdkit.loop import Rollouts
from pmdkit.objectives import OBJECTIVES, Batch, Groups, Objective, credit, cut, parts, total, traits

__all__ = ["PATHS", "TOLERANCE", "absent", "cases", "check_parity", "errors", "largest_error", "parity"]

TOLERANCE = 1e-6
ADAPTERS = {point.name: point for point in entry_points(group="pmdkit.golden")}
"Modules of installed packages with a function `path`, by the name of the package that they adapt to."
Case = dict[str, Any]
Result = tuple[float | list[float], list[list[float]]]
LossPath = Callable[[Case], Result | None]


def cases() -> list[Case]:
    """The recorded cases."""
    text = resources.files("pmdkit.testing.golden").joinpath("vectors.json").read_text(encoding="utf-8")
    found: list[Case] = json.loads(text)["cases"]
    return found


def parity() -> dict[str, dict[str, Any]]:
    """By name of each installed path: `max_error` of any entry of loss or gradient, and the number of `cases`."""
    table = {}
    for name, path in PATHS.items():
        if not missing(name):
            found = list(errors(path).values())
            table[name] = {"max_error": max(found), "cases": len(found)}
    return table


def absent() -> dict[str, str]:
    """The paths that are not installed here, with what they lack."""
    return {name: lacks for name in PATHS if (lacks := missing(name))}


def errors(path: LossPath) -> dict[str, float]:
    """The largest error of every case that a path runs, by the case's name."""
    return {case["name"]: largest_error(*result, case) for case in cases() if (result := path(case)) is not None}


def largest_error(loss: float | list[float], gradient: list[list[float]], case: Case) -> float:
    """The largest error of an entry of loss or gradient; NaN counts as infinite."""
    losses = [loss] if isinstance(loss, float) else loss
    pairs = list(zip(losses, case["loss"], strict=True))
    for mine, wanted in zip(gradient, case["gradient"], strict=True):
        pairs += zip(mine, wanted, strict=True)
    return max(abs(a - b) if a == a else float("inf") for a, b in pairs)


def check_parity(function: LossPath) -> dict[str, Any]:
    """Run the golden vectors through a loss of your own.

    Args:
        function: takes a case as docs/use/golden.md describes it; returns loss (a number, or one per ministep) and
            gradient [P * G][T_n] by logp, or None for a case that it is not meant for.

    Returns:
        `max_error` and `cases`, how many were run.

    Raises:
        AssertionError: an entry is off by more than TOLERANCE, with the name of the case; or no case was run.
    """
    found = errors(function)
    assert found, "the function returned None for every case; expected loss and gradient for some"
    worst = max(found, key=lambda name: found[name])
    agree = f"{sum(error <= TOLERANCE for error in found.values())} of {len(found)} cases agree"
    assert found[worst] <= TOLERANCE, f"case '{worst}' is off by {found[worst]:.1e}; {agree}"
    return {"max_error": found[worst], "cases": len(found)}


def missing(name: str) -> str:
    """The reason why a path cannot run on this machine; empty if it can."""
    wanted = REQUIRES.get(name)
    if wanted is not None and not util.find_spec(wanted):
        return f"{wanted} is not installed"
    if name in ADAPTERS:
        try:
            ADAPTERS[name].load()
        except EnvironmentLacks as lacks:  # another version of it
            return str(lacks)
    return ""


# The paths: ways in which a loss is computed here, each fed with one recorded case. A path returns None for a case that
# it does not know: a table has no responses of two tokens, and only the formula and the adapters know tokens in the
# middle that do not count.


def formula(case: Case) -> Result:
    """`credit`, `cut`, `total` and autograd."""
    logp = rows_of(case, "logp").requires_grad_()
    losses = losses_of(case, logp)
    (gradient,) = torch.autograd.grad(sum(losses, torch.zeros(())), logp)
    return result(losses, gradient, case)


def table(case: Case) -> Result | None:
    """The bandit's table: a response of one token is an arm, one more arm has the rest; None for longer responses."""
    from pmdkit.bandit.learner import BanditLearner

    if any(len(row) > 1 for row in case["logp"]):
        return None
    prompts, size = len(case["reward"]), len(case["reward"][0])
    learner = BanditLearner(with_rest(rows_of(case, "logp").view(prompts, size)))
    return run_learner(case, learner, torch.arange(prompts))


def toy(case: Case) -> Result | None:
    """Loss and gradient by the toy tier's learner, with recorded log-probabilities in place of its transformer's.

    The first tokens of a group are different arms, as in the table; from then on a vocabulary of two is enough.
    """
    from pmdkit.toy.learner import ToyLearner

    if has_holes(case):
        return None
    model: Any = RecordedTransformer(case)
    learner = ToyLearner(model, eos=0, width=mask_of(case).shape[1])
    return run_learner(case, learner, torch.zeros(len(case["reward"]), 1, dtype=torch.int64))


def run_learner(case: Case, learner: Any, prompts: Tensor) -> Result:
    """Loss and gradient by what the learner says the log-probabilities are."""
    size, mask = len(case["reward"][0]), mask_of(case)
    responses = torch.zeros(mask.shape, dtype=torch.int64)
    responses[:, 0] = torch.arange(size).repeat(len(case["reward"]))
    rollouts = Rollouts(
        prompts=prompts,
        responses=responses,
        logp_old=rows_of(case, "logp_old"),
        mask=mask,
        mass=torch.full((len(prompts), size), 1 / size, dtype=torch.float64),
        sampled=True,
        seed=0,
        version=0,
        width=mask.shape[1],
    )
    now = learner.logp(rollouts)
    losses = losses_of(case, now)
    (gradient,) = torch.autograd.grad(sum(losses, torch.zeros(())), now)
    return result(losses, gradient, case)


class RecordedTransformer(torch.nn.Module):
    """The methods of a transformer that `pmdkit.toy.sampling.score` calls; its hidden states are log-probabilities."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        prompts, size = len(case["reward"]), len(case["reward"][0])
        logp = rows_of(case, "logp")
        self.first = torch.nn.Parameter(with_rest(logp[:, 0].view(prompts, size)))
        # a row reads nothing after its last token; -1 stands where rows_of has padding, whose rest would be log 0
        self.later = torch.where(logp[:, 1:] < 0, logp[:, 1:], -1.0)
        self.size = size
        self.config = SimpleNamespace(context=10**6, vocabulary=size + 1)

    def prefill(self, prompts: Tensor, max_length: int) -> tuple[Tensor, Any]:
        """Logits of the first tokens, and a cache whose `select` returns the prompt of each row."""
        return self.first, SimpleNamespace(select=lambda owner: owner)

    def hidden(self, responses: Tensor, owner: Tensor) -> Tensor:
        """[leaves, T - 1, V] log-probabilities at each place of a response; token 0 is the recorded one."""
        logp = self.later[owner * self.size + responses[:, 0]]
        return torch.stack([logp, torch.log1p(-logp.exp()), *[torch.full_like(logp, -torch.inf)] * (self.size - 1)], -1)

    def head(self, states: Tensor) -> Tensor:
        """Logits of hidden states."""
        return states


def with_rest(logp: Tensor) -> Tensor:
    """[P, G + 1] the arms, plus one with each policy's remaining probability."""
    return torch.cat([logp, torch.log1p(-logp.exp().sum(1, keepdim=True))], 1)


def through_head(case: Case, in_one: bool) -> Result | None:
    """A vocabulary of two: the head's weight is the identity and the states are log-probabilities.

    The gradient by a target's state is (1 - p) times that by its log-probability. `in_one` takes three matrix products,
    for response-level objectives only; otherwise logits are computed again in the backward pass.
    """
    from pmdkit.llm.fused_loss import fused_linear_loss
    from pmdkit.llm.head import head_logp
    from pmdkit.llm.logprobs import to_rows

    objective, batches = objective_of(case), ministeps_of(case)
    if has_holes(case) or (in_one and traits(objective).level == "token"):
        return None
    losses, gradient = [], []
    place = 0
    for batch in batches:
        rows = case["logp"][place : (place := place + len(batch.logp))]
        flat, lengths = torch.tensor([x for row in rows for x in row], dtype=torch.float64), [len(row) for row in rows]
        states = torch.stack([flat, torch.log1p(-flat.exp())], 1).requires_grad_()
        weight, targets = torch.eye(2, dtype=torch.float64), torch.zeros(len(flat), dtype=torch.int64)
        if in_one:
            loss = fused_linear_loss(states, weight, targets, lengths, objective, batch, head_tokens=3).loss
        else:
            logp = to_rows(head_logp(states, weight, targets, head_tokens=3), lengths, batch.mask.shape[1])
            loss = total(objective, replace(batch, logp=logp))
        (by_state,) = torch.autograd.grad(loss, states)
        losses.append(loss.item())
        gradient += [row.tolist() for row in (by_state[:, 0] / (1 - flat.exp())).split(lengths)]
    return losses, gradient


def adapter(case: Case, name: str) -> Result | None:
    """The path through an adapter, imported when it is run: it needs what not everybody has."""
    found: Result | None = ADAPTERS[name].load().path(case)
    return found


PATHS: dict[str, LossPath] = {
    "objectives": formula,
    "bandit-table": table,
    "toy": toy,
    "llm-chunked-head": partial(through_head, in_one=False),
    "llm-fused-head": partial(through_head, in_one=True),
    **{name: partial(adapter, name=name) for name in ADAPTERS},
}


REQUIRES = {"llm-chunked-head": "transformers", "llm-fused-head": "transformers", **{name: name for name in ADAPTERS}}


# A recorded case as tensors.


def objective_of(case: Case) -> Objective:
    """The objective with the case's options; if prompts differ in tau, it is a rule that returns each one's."""
    options = dict(case["options"])
    if case["tau"]:
        tau = torch.tensor(case["tau"], dtype=torch.float64)
        options["tau"] = case["tau"][0] if len(set(case["tau"])) == 1 else lambda groups: tau.to(groups.reward)
    objective: Objective = OBJECTIVES[case["objective"]](norm=case["norm"], **options)
    return objective


def groups_of(case: Case) -> Groups:
    """Rewards and masses [P, G], float64; a response without a verdict has mass 0."""
    reward = torch.tensor([[0.0 if r is None else r for r in row] for row in case["reward"]], dtype=torch.float64)
    present = torch.tensor([[r is not None for r in row] for row in case["reward"]])
    return Groups(reward, present / present.sum(1, keepdim=True).clamp_min(1).double())


def rows_of(case: Case, name: str) -> Tensor:
    """[N, T] float64 of `logp` or `logp_old`, padded with 0."""
    width = max(len(row) for row in case[name])
    return torch.tensor([row + [0.0] * (width - len(row)) for row in case[name]], dtype=torch.float64)


def mask_of(case: Case) -> Tensor:
    """[N, T] boolean."""
    width = max(len(row) for row in case["mask"])
    return torch.tensor([[bool(on) for on in row] + [False] * (width - len(row)) for row in case["mask"]])


def batch_of(case: Case) -> Batch:
    """The whole batch at pi = pi_old."""
    return credit(objective_of(case), groups_of(case), rows_of(case, "logp_old"), mask_of(case), width=case["width"])


def ministeps_of(case: Case) -> list[Batch]:
    """The batch cut as the loop cuts it."""
    prompts, size = groups_of(case).reward.shape
    return [cut(batch_of(case), part, prompts, size) for part in parts(prompts, case["ministeps"])]


def losses_of(case: Case, logp: Tensor) -> list[Tensor]:
    """The loss of each ministep at these log-probabilities, [N, T]."""
    batches = ministeps_of(case)
    rows = logp.split([len(batch.logp) for batch in batches])
    objective = objective_of(case)
    return [total(objective, replace(batch, logp=logp)) for batch, logp in zip(batches, rows, strict=True)]


def result(losses: list[Tensor], gradient: Tensor, case: Case) -> Result:
    """The losses as numbers, and the gradient [N][T_n] without its padding."""
    rows = zip(gradient, case["logp"], strict=True)
    return [loss.item() for loss in losses], [row[: len(tokens)].tolist() for row, tokens in rows]


def has_holes(case: Case) -> bool:
    """Whether a token in the middle does not count, as what a tool wrote."""
    return any(0 in row for row in case["mask"])
