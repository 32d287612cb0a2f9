"""A KL term in a loss, or in its reward: which estimate, of what, and with which coefficient."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import product
from typing import ClassVar

import torch
from torch import Tensor

from pmdkit.objectives import Batch
from pmdkit.objectives.regulariser import kl_estimate
from pmdkit_lab.certify.candidates import usual
from pmdkit_lab.certify.probes import DIFFERS, Probe, ordinary
from pmdkit_lab.certify.trial import KINDS, Question, Trial, factor
from pmdkit_lab.certify.verdict import SCREENING_TOL, Found, judge

PENALTIES = {"k1": "k1", "k2": "k2", "k3": "k3", "k3 of the inverse ratio": "k3", "abs": ""}


def with_penalty(question: Question, candidates: Iterable[Trial], tau: float, found: Found) -> None:
    """Add the candidates that agree with the loss once a KL term is added, by least squares of the two gradients."""
    wanted = [s for _, s in question.slopes["ordinary"]]
    usable = [x for x in candidates if x.name != "grpo-kl" and bool(x.slope("ordinary", 0).any())]
    if not usable:
        return
    ours = torch.stack([x.slope("ordinary", 0).flatten() for x in usable])
    for anchor, estimator, whole, by_length, padding in product(
        ("pi_ref", "pi_old") if question.with_ref else ("pi_old",),
        PENALTIES,
        (False, True),
        (False, True),
        (False, True),
    ):
        if (padding and (whole or anchor == "pi_old")) or (anchor, estimator, whole) == ("pi_old", "k2", True):
            continue
        penalty = partial(penalty_slope, estimator, anchor, whole, by_length, padding)
        column = penalty(ordinary()[0])
        for place in spans(wanted[0].flatten(), ours, column.flatten()):
            trial = usable[place]
            pulls = hasattr(trial.objective, "tau")
            if anchor == "pi_old" and (pulls or (estimator == "k1" and not hasattr(trial.objective, "clip_low"))):
                continue  # the pull, or a baseline, by another name
            added = fit_penalty(wanted, trial, penalty)
            if added is None:
                continue
            beta = added.beta
            what = f"{estimator} of log pi/{anchor} {'per response' if whole else 'per token'}"
            said: list[str] = []
            if beta < 0:
                said = [f"the KL term ({what}) has the wrong sign: its coefficient is {beta:.4g}"]
            elif estimator == "k3 of the inverse ratio":
                said = [f"the KL term is {what}: e^s - 1 - s, not e^-s - 1 + s (coefficient {beta:.4g})"]
            elif estimator == "k1":
                said = [f"the KL term is {what}, or log pi is added as an entropy bonus: "
                        f"as a loss, its expected gradient is 0 (coefficient {beta:.4g})"]  # fmt: skip
            elif estimator == "abs":
                said = [f"the KL term is {what}, which as a loss has the gradient of twice the total variation "
                        f"(coefficient {beta:.4g})"]  # fmt: skip
            if padding:
                said.append(f"padding counts in the KL term ({what}, coefficient {beta:.4g})")
            if added.share or by_length != trial.by_length:
                own = "averaged over each response" if by_length else "added up over tokens and averaged over responses"
                said.append(f"the KL term ({what}, coefficient {beta:.4g}) has another length rule than the loss: "
                            f"{added.share or own}")  # fmt: skip
            more = {} if said else {"kl_coef": beta, "kl_estimator": estimator} | (
                {} if anchor == "pi_ref" or not question.with_ref else {"anchor": "pi_old"})  # fmt: skip
            verdict = judge(question, added, tau, tuple(said), more)
            if verdict[0] == 0.0 and (padding or not set(verdict[2].slips) & set(DIFFERS.values())):
                found.append(verdict)


def spans(wanted: Tensor, ours: Tensor, column: Tensor) -> list[int]:
    """The rows of `ours` [K, M] that give `wanted` [M] together with a column [M]: at most 40, the nearest first."""
    unit = column / column.norm()
    target, rows = wanted - (wanted @ unit) * unit, ours - (ours @ unit)[:, None] * unit
    size = (rows**2).sum(1)
    free = size > 1e-10 * (ours**2).sum(1)
    share = torch.where(free, rows @ target / size.clamp_min(1e-300), 0.0)
    error = (share[:, None] * rows - target).norm(dim=1) / wanted.norm()
    return [int(i) for i in error.argsort()[:40] if error[i] < SCREENING_TOL and free[i]]


def fit_penalty(wanted: list[Tensor], trial: Trial, penalty: Callable[[Probe], Tensor]) -> "Penalised | None":
    """A candidate with the KL term at the coefficient that all ordinary batches share, or None."""
    first, second = [], []
    for target, ours, probe in zip(wanted, trial.on("ordinary"), ordinary(), strict=True):
        columns = torch.stack([ours.flatten(), penalty(probe).flatten()], 1)
        gram = columns.T @ columns
        if float(torch.linalg.det(gram)) < 1e-10 * float(gram[0, 0] * gram[1, 1]):
            return None
        solution = torch.linalg.solve(gram, columns.T @ target.flatten())
        first.append(float(solution[0]))
        second.append(float(solution[1]) / float(solution[0]))
    if max(map(abs, second)) < 1e-6:
        return None
    # the coefficient may change with the batch as one of its reductions does
    # the reduction that explains the constants best
    own, _, _ = factor([torch.tensor([x]) for x in first], [torch.ones(1)] * len(first), ordinary())
    for share in ("", *(x for x in ordinary()[0].factors if x)):
        ratios = [x / p.factors[share] * p.factors[own] for x, p in zip(second, ordinary(), strict=True)]
        ratios = second if not share else ratios
        beta = sum(ratios) / len(ratios)
        if max(abs(x / beta - 1) for x in ratios) < 1e-4:
            shown = float(f"{beta:.4g}")
            beta = shown if abs(shown / beta - 1) < 1e-5 else beta
            given = {f.name: getattr(trial, f.name) for f in fields(Trial)} | {"slopes": {}, "twin": None}
            return Penalised(**given, penalty=penalty, beta=beta, share=share, own=own)
    return None


def penalty_slope(estimator: str, anchor: str, whole: bool, by_length: bool, padding: bool, probe: Probe) -> Tensor:
    """The gradient of the mean KL term over the responses to a batch."""
    logp = probe.logp.clone().requires_grad_()
    mask = torch.ones_like(probe.mask) if padding else probe.mask
    s = torch.where(mask, logp - (probe.logp_ref if anchor == "pi_ref" else probe.logp_old), 0.0)
    s = s.sum(1, keepdim=True) if whole else s
    kind = PENALTIES[estimator]
    value = (kl_estimate(-s if "inverse" in estimator else s, kind) if kind else s.abs()).sum(1)
    tokens = probe.mask.sum(1) if by_length else torch.ones(len(logp))
    (slope,) = torch.autograd.grad((value / tokens / len(logp)).sum(), logp)
    return slope


@dataclass(eq=False)
class Penalised(Trial):
    """A candidate with beta times a KL term.

    Attributes:
        share: the reduction of the term where it is not that of the loss, which is `own`.
    """

    penalty: Callable[[Probe], Tensor] = field(default=lambda probe: probe.logp)
    beta: float = 0.0
    share: str = ""
    own: str = ""
    same_value: ClassVar[bool] = False

    def compute(self, kind: str, i: int) -> Tensor:
        """The sum of both gradients."""
        probe = KINDS[kind]()[i]
        factors = probe.factors
        scale = self.beta * (factors[self.share] / factors[self.own] if self.share else 1.0)
        return super().compute(kind, i) + scale * self.penalty(probe)


def in_reward(question: Question, candidates: Iterable[Trial], tau: float, found: Found) -> None:
    """Add the candidates that agree with the loss once a KL term is taken from the reward."""
    if not question.with_ref:
        return
    wanted = question.slopes["ordinary"][0][1]
    for trial in candidates:
        if not usual(trial) or trial.name in ("grpo-kl", "flowrl") or not bool(trial.slope("ordinary", 0).any()):
            continue
        for shape in product(("pi_old", "pi"), ("k1", "k2", "k3"), (False, True), (False, True)):
            if shape[0] == "pi_old" and shape[3]:
                continue
            given = {f.name: getattr(trial, f.name) for f in fields(Trial)} | {"twin": None}
            shaped = partial(replace, Shaped(**given, shape=shape))
            base, beta, step = trial.slope("ordinary", 0), 0.0, 1e-3
            for _ in range(6):  # Newton's steps, since a std makes the advantage nonlinear in beta
                at = shaped(beta=beta, slopes={}).slope("ordinary", 0) if beta else base
                ahead = shaped(beta=beta + step, slopes={}).slope("ordinary", 0)
                columns = torch.stack([at.flatten(), (ahead - at).flatten() / step], 1)
                constant, move = torch.linalg.lstsq(columns, wanted.flatten()[:, None]).solution[:, 0].tolist()
                error = float(
                    (columns @ torch.tensor([constant, move]).double() - wanted.flatten()).norm() / wanted.norm()
                )
                if error > 0.3 or constant == 0:
                    break
                beta, step = beta + move / constant, 1e-5
                if abs(move / constant) < 1e-9:
                    break
            if not error <= SCREENING_TOL or abs(beta) < 1e-6:
                continue
            shown = float(f"{beta:.4g}")
            beta = shown if abs(shown / beta - 1) < 1e-5 else beta
            policy, estimator, averaged, attached = shape
            wrong = {
                "has the wrong sign": beta < 0,
                "is a mean over tokens, not a sum": averaged,
                "is not detached: the gradient also goes through the reward": attached,
                "is that of the policy that learns, not of pi_old": policy == "pi" and not attached,
            }
            what = f"the KL term in the reward ({estimator} of log {policy}/pi_ref, coefficient {beta:.4g})"
            said = [f"{what} {words}" for words, so in wrong.items() if so]
            more = {} if said else {"kl_coef": beta, "kl_estimator": estimator, "kl_in": "reward"}
            found.append(judge(question, shaped(beta=beta, slopes={}), tau, tuple(said), more))


@dataclass(eq=False)
class Shaped(Trial):
    """A candidate whose rewards are less by beta times a KL estimate of the response.

    Attributes:
        shape: the policies compared, the estimate, whether it is a mean over tokens, whether its gradient is kept.
    """

    shape: tuple[str, str, bool, bool] = ("pi_old", "k1", False, False)
    beta: float = 0.0
    # such a term makes the std of equal rewards small, so that a constant of 1e-8 in it shows
    silent_tol: ClassVar[float] = 1e-4

    def credited(self, probe: Probe, logp: Tensor) -> tuple[Batch, Probe]:
        """What the objective sees at these rewards."""
        policy, estimator, averaged, attached = self.shape
        moving = {"pi_old": probe.logp_old, "pi": logp}[policy]
        value = torch.where(
            probe.mask, kl_estimate(torch.where(probe.mask, moving - probe.logp_ref, 0.0), estimator), 0.0
        )
        value = value.sum(1) / (probe.mask.sum(1) if averaged else 1)
        value = value if attached else value.detach()
        changed = replace(probe, reward=probe.reward - self.beta * value.view(probe.reward.shape))
        batch, objective = super().credited(probe, logp)[0], self.credit or self.objective
        return replace(batch, advantage=objective.advantage(changed.groups).flatten()), changed
