"""Data types of all objectives, Groups (credit) and Batch (loss), and the reduction to one number.

The methods are in files of their own. Letters: P prompts, G responses per prompt, N = P * G rows, T tokens.
A bandit arm is a response of one token. An exact expectation is a sample whose weights, `mass`, are probabilities.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

Norm = Literal["none", "length", "max", "tokens"]


@dataclass(frozen=True)
class Groups:
    """Phase 1, credit: whole groups of responses, without gradient.

    Attributes:
        reward: [P, G], reward units.
        mass: [P, G], the weight of y in E_{y ~ pi_old(.|x)}: 1/G for draws, pi_old(y|x) on the full support.
            0 marks an absent or unscored row, which never enters a baseline.
        sampled: True for draws (peer baselines leave out a row's own reward), False for the full support, where
            mass = pi_old.
    """

    reward: Tensor
    mass: Tensor
    sampled: bool = True

    def __post_init__(self) -> None:
        if self.reward.ndim != 2 or self.reward.shape != self.mass.shape:
            raise ValueError(
                f"reward has shape {list(self.reward.shape)} and mass {list(self.mass.shape)}; "
                "expected both [P, G]: one row per prompt, one column per response"
            )
        if not self.mass.is_floating_point():
            raise ValueError(f"mass has dtype {self.mass.dtype}; expected floating point, such as 1 / G for draws")
        if (
            not self.reward.is_floating_point()
        ):  # counts and verdicts are exact in any float; as integers they would round tau to 0
            object.__setattr__(self, "reward", self.reward.to(self.mass.dtype))
        if self.reward.numel() == 0:
            raise ValueError(f"reward has shape {list(self.reward.shape)}; expected a prompt and a response at least")
        if not bool((torch.isfinite(self.mass) & (self.mass >= 0)).all()):
            raise ValueError("mass has a negative or NaN entry; expected weights >= 0, with 0 for an absent response")
        if not bool(torch.isfinite(self.reward[self.present]).all()):
            raise ValueError("reward has a NaN or infinite entry; give unscored responses mass 0 instead")

    @property
    def present(self) -> Tensor:
        """[P, G] boolean: the rows that count."""
        return self.mass > 0

    @property
    def scored(self) -> Tensor:
        """[P] boolean: the groups that carry a signal (a draw needs a peer to be compared with)."""
        return self.present.sum(1) >= (2 if self.sampled else 1)


@dataclass(frozen=True)
class Temperature:
    """A finite number > 0; of a rule, `temperature` checks what it returns."""

    def check(self, name: str, value: Any, whole: bool = False) -> None:
        """Require a temperature."""
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not (number and 0 < value < math.inf):
            units = "in reward units (0.05 on rewards {0,1} is 0.1 on +-1)"
            raise ValueError(f"{name} is {value!r}; expected a finite number > 0 {units}")


Tau = Annotated[float | Callable[[Groups], Tensor], Temperature()]


@dataclass(frozen=True)
class Batch:
    """Phase 2, loss: rows of responses. Only `logp` has a gradient.

    Attributes:
        logp, logp_old: [N, T] log-probabilities of the tokens, nats.
        mask: [N, T] boolean, True on the tokens of the response.
        length: [N] tokens of the response, at least 1.
        advantage: [N] reward minus a baseline; the only place where reward enters.
        weight: [N] mass / P / length rule: the whole reduction, one number per row.
        tau: [N] temperature in reward units (NaN for an objective without one).
        mass: [N] weight of the row within its group.
        group: [N] index of the prompt that the row answers.
        correction: [N] or [N, T] importance weights for the engine mismatch: data, not part of a method.
        logp_ref: [N, T] log-probabilities under a reference policy.
        magnitude: [N] largest |reward| of the group, the scale for rounding errors of an advantage.
    """

    logp: Tensor
    logp_old: Tensor
    mask: Tensor
    length: Tensor
    advantage: Tensor
    weight: Tensor
    tau: Tensor
    mass: Tensor
    group: Tensor
    correction: Tensor | None = None
    logp_ref: Tensor | None = None
    magnitude: Tensor | None = None

    def __post_init__(self) -> None:
        rows = self.logp.shape[:1]
        for name in ("logp_old", "mask", "logp_ref"):
            value = getattr(self, name)
            if value is not None and value.shape != self.logp.shape:
                raise ValueError(
                    f"{name} has shape {list(value.shape)}; expected {list(self.logp.shape)}, the shape of logp"
                )
        if self.logp.ndim != 2:
            raise ValueError(f"logp has shape {list(self.logp.shape)}; expected [N, T], one row per response")
        if self.mask.dtype != torch.bool:
            raise ValueError(f"mask has dtype {self.mask.dtype}; expected torch.bool, True on response tokens")
        for name in ("length", "advantage", "weight", "tau", "mass", "group"):
            value = getattr(self, name)
            if value.shape != rows:
                raise ValueError(
                    f"{name} has shape {list(value.shape)}; expected {list(rows)}, one number per response. "
                    "Group advantages come from objective.advantage(groups), not per token."
                )

    @property
    def log_ratio(self) -> Tensor:
        """[N, T] log pi/pi_old, 0 off the mask. `where`, not a product, so that inf or NaN off the mask is harmless."""
        return torch.where(self.mask, self.logp - self.logp_old, 0.0)

    @property
    def seq_log_ratio(self) -> Tensor:
        """[N] log pi(y|x)/pi_old(y|x), float64: float32 sums are off by 4e-4 nats at 2,048 tokens."""
        return self.log_ratio.double().sum(1)

    @property
    def seq_logp(self) -> Tensor:
        """[N] log pi(y|x), float64."""
        return torch.where(self.mask, self.logp, 0.0).double().sum(1)

    @property
    def seq_log_ratio_ref(self) -> Tensor:
        """[N] log pi(y|x)/pi_ref(y|x), float64; the anchor is pi_old where no reference policy is given."""
        if self.logp_ref is None:
            return self.seq_log_ratio
        return torch.where(self.mask, self.logp - self.logp_ref, 0.0).double().sum(1)

    def centred(self, s: Tensor) -> Tensor:
        """[N] s minus its mass-weighted mean over the rows of the same group. Needs whole groups in the batch."""
        ids, group = torch.unique(self.group, return_inverse=True)
        mass = self.mass.to(s.dtype)
        zeros = s.new_zeros(len(ids))
        mean = zeros.index_add(0, group, mass * s) / one_if_zero(zeros.index_add(0, group, mass))
        return s - mean[group]

    def folded(self) -> "Batch":
        """Sum the tokens of each row into one; `length` keeps the number of tokens."""

        def fold(x: Tensor) -> Tensor:
            return torch.where(self.mask, x, 0.0).double().sum(1, keepdim=True)

        return replace(
            self,
            logp=fold(self.logp),
            logp_old=fold(self.logp_old),
            logp_ref=None if self.logp_ref is None else fold(self.logp_ref),
            mask=self.mask.any(1, keepdim=True),
        )

    def __getitem__(self, rows: Tensor | slice) -> "Batch":
        """The selected rows with unchanged weights, so that micro-batches add up to the whole."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        taken: dict[str, Any] = {name: None if value is None else value[rows] for name, value in values.items()}
        return Batch(**taken)


def expect(values: Tensor, mass: Tensor) -> Tensor:
    """E of `values` [P, G] under `mass`, as [P, 1]. Absent entries may hold anything, NaN included."""
    weighted = torch.where(mass > 0, mass * values, 0.0)
    return weighted.sum(1, keepdim=True) / one_if_zero(mass.sum(1, keepdim=True))


def log_expect_exp(values: Tensor, mass: Tensor) -> Tensor:
    """log E exp(values) under `mass`, as [P, 1], without overflow."""
    log_mass = torch.where(mass > 0, mass, 1.0).log()
    terms = torch.where(mass > 0, values + log_mass, -torch.inf)
    return torch.logsumexp(terms, 1, keepdim=True) - mass.sum(1, keepdim=True).log()


def row_weight(mass: Tensor, length: Tensor, norm: Norm, width: int | None = None) -> Tensor:
    """The reduction as one number per row: mass / prompts / length rule.

    Losses do not divide by the length, except where the equation itself contains it (GSPO, GMPO).

    Args:
        mass: [P, G]; renormalised over the rows that are present; 0 stays 0.
        length: [N] or [P, G] tokens.
        norm: "none"; "length" (each response's own length); "max" (the generation budget `width`); "tokens" (all
            tokens of the batch, so that long responses count more).
        width: generation budget in tokens, for "max". Never the padded width of a batch.

    Returns:
        [N] weights. With "none", the sum of weight * loss is the mean over prompts of their mass-weighted means.
    """
    prompts = max(len(mass), 1)
    share = (mass / one_if_zero(mass.sum(1, keepdim=True))).flatten()
    length = length.flatten().to(share.dtype)
    if norm == "none":
        return share / prompts
    if norm == "length":
        return share / prompts / length
    if norm == "max":
        if width is None or width < 1:
            raise ValueError(f"norm 'max' got width {width}; expected the generation budget in tokens, an integer >= 1")
        return share / prompts / width
    if norm == "tokens":
        return share / one_if_zero((share * length).sum())
    raise ValueError(f"norm is '{norm}'; expected one of none, length, max, tokens")


def one_if_zero(total: Tensor) -> Tensor:
    """Replace 0 by 1 in a denominator whose numerator is 0 as well: a group with no row present averages to 0."""
    return torch.where(total > 0, total, 1.0)
