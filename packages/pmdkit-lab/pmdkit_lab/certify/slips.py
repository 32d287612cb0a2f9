"""Slips: usual mistakes of one kind each, as a change of the batch that an objective sees, or of the objective."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from pmdkit.objectives import CISPO, GMPO, GRPO, GSPO, RLOO, SAPO, Batch, Groups, Objective, baselines, credit
from pmdkit.objectives.contrib.reinforce_pp import ReinforcePP
from pmdkit.objectives.pmd_token import PMDToken
from pmdkit_lab.certify.probes import Probe, ordinary

Twist = Callable[[Batch, Probe], Batch]
"Maps the batch that the objective should see to the batch that it sees."


@dataclass(frozen=True)
class Slip:
    """A mistake.

    Attributes:
        words: what is wrong with the loss; empty for none.
        twist: what the objective sees in place of its batch.
        sign: the loss with the mistake is this multiple of the twisted objective.
        objective: a class that takes the place of the objective's own, with the same options.
        recount: maps the mask to the one that the mistake counts tokens under.
        rows: maps a batch to [N], by which the loss of each response is multiplied.
    """

    words: str = ""
    twist: Twist | None = None
    sign: float = 1.0
    objective: Any = None
    recount: Callable[[Tensor], Tensor] | None = None
    rows: Callable[[Probe], Tensor] | None = None


def advantages(tau: float, of_part: bool) -> Iterator[Slip]:
    """The advantages that a loss may have in place of an objective's own; `of_part`: those of PMD-part."""
    for words, advantage in (log_partitions(tau) if of_part else ADVANTAGES).items():
        yield Slip(words, partial(with_advantage, advantage))


def with_std(objective: Objective, std: str, constant: float) -> Slip | None:
    """The advantage of an objective that divides by a std, with a constant added to it; None if it has no std."""
    if not hasattr(objective, "std") or std not in dict(STDS):
        return None
    advantage: Any = with_constant
    if isinstance(objective, ReinforcePP):
        advantage = of_batch if objective.baseline == "batch" else partial(of_group_over_batch, centred=True)
    return Slip("", partial(with_advantage, partial(advantage, correction=dict(STDS)[std], constant=constant)))


def credit_options(objective: Objective) -> Iterator[Slip]:
    """Options of the advantage at other values than the objective's."""
    kind = type(objective)
    for option, values in CREDIT_OPTIONS.items():
        if isinstance(own := getattr(objective, option, None), float):
            for value in values:
                yield Slip(f"{option} is {value:g}, not {own:g}", objective=partial(with_option, kind, option, value))


def slips(objective: Objective, tau: float) -> Iterator[Slip]:
    """The slips that can be made in an objective, apart from its advantage."""
    for words, twist in TWISTS.items():
        yield Slip(words, twist)
    for words, rows in ROWS.items():
        yield Slip(words, rows=rows)
    for words, change in MASKS.items():
        for own_length in (False, True):
            yield Slip(words, partial(masked, change, own_length), recount=change)
    if hasattr(objective, "tau"):
        yield Slip("the pull has the wrong sign: it pushes away from pi_old", partial(with_tau, -tau))
        # (A - s / tau)^2 / (2 tau) has 1 / tau^2 times the gradient of the objective at a temperature of 1 / tau
        yield Slip("the log ratio is divided by tau, not multiplied by it", partial(with_tau, 1 / tau), sign=1 / tau**2)
        yield Slip(
            "the advantage is twice as large: are the rewards +-1, and not 0 and 1?",
            partial(with_changed_advantage, lambda advantage, probe: 2 * advantage),
        )
    if objective.loss(at_old(objective, ordinary()[0], False)).ndim == 1:
        yield Slip("per token, where it should be per response", by_token)
        padded = "the log ratio of a response is averaged over the padded width"
        if isinstance(objective, GSPO):
            yield Slip(padded, partial(scaled_ratio, lambda length, width: length / width))
        else:
            mean = partial(scaled_ratio, lambda length, width: 1 / length)
            yield Slip("the log ratio of a response is the mean over its tokens, not the sum", mean)
            yield Slip(padded, partial(scaled_ratio, lambda length, width: 1 / width))
    else:
        yield Slip("the mean over the responses is taken at each token position, then over the positions", by_position)
        yield Slip("per response, where it should be per token", lambda batch, probe: batch.folded())
        yield Slip("the ratio of a token is the ratio of its whole response up to there", prefix_ratio)
        yield Slip("the ratio of every token is that of the response, exp of the mean log ratio", spread_mean)
    if hasattr(objective, "clip_low"):
        negated = partial(with_changed_advantage, lambda advantage, probe: -advantage)  # max(a, b) = -min(-a, -b)
        yield Slip("the maximum is taken where the minimum should be", negated, sign=-1.0)
        yield Slip(
            "the clip applies whatever the sign of the advantage: no minimum", None, objective=plain_clip(objective)
        )
        if isinstance(objective, GRPO | GSPO):
            yield Slip(
                "where the advantage is negative, the maximum is taken: nothing bounds a ratio that falls",
                objective=larger_below(objective),
            )
    if isinstance(objective, GSPO):
        yield Slip("the log ratio of a response is the sum over its tokens: 1/|y| is missing",
                   partial(scaled_ratio, lambda length, width: length))  # fmt: skip
    if isinstance(objective, GMPO):
        yield Slip("the log ratio of a response is the sum over its tokens: 1/|y| is missing", objective=SumGMPO)
    again = "it is multiplied once more by the detached ratio"
    if isinstance(objective, RLOO):
        again = "it has an importance ratio, which rloo here does not have"
    for cap, words in ((float("inf"), ""), (2.0, ", capped at 2")):
        yield Slip(f"{again}{words}", objective=weighted(objective, cap))
    if isinstance(objective, CISPO):
        yield Slip("the weight is not detached: the gradient also goes through the ratio", objective=Attached)
    if isinstance(objective, PMDToken):
        yield Slip(
            "the pull is the square of the sum of log ratios, not the sum of their squares", objective=SquareOfSum
        )


def dials(objective: Objective, tau: float) -> Iterator["Dial"]:
    """The numbers that can be turned in an objective to come nearer to a loss."""
    clips = [name for name in ("clip_low", "clip_high") if hasattr(objective, name)]
    if clips:
        nats = isinstance(objective, PMDToken | GMPO)
        high = NATS if nats else (*SHARES, *ABOVE_ONE)
        narrow = ("narrow",) if isinstance(objective, GSPO | GMPO) else ()
        yield Dial(tuple(clips), (NATS if nats else (*SHARES, 1.0), high), narrow=narrow)
    if isinstance(objective, SAPO):
        steep = (0.5, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0)
        yield Dial(("tau_pos", "tau_neg"), (steep, steep))
    options: tuple[Any, ...] = fields(objective) if is_dataclass(objective) else ()
    numbers = [option for option in options if option.name in OTHER_OPTIONS]
    for option in numbers:
        default = getattr(objective, option.name)
        if not isinstance(default, int | float) or isinstance(default, bool):
            continue
        around = [default * x for x in (0.1, 0.2, 0.25, 0.5, 0.8, 0.9, 1.1, 1.25, 1.5, 2, 4, 5, 10)]
        yield Dial(
            (option.name,),
            (
                (0.0, *around, 0.1, 0.2, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
                if default
                else (0.01, 0.1, 0.5, 1.0, -0.1, -0.5),
            ),
        )
    if hasattr(objective, "tau"):
        values = (*(tau * x for x in (0.01, 0.1, 0.2, 0.25, 0.5, 1.5, 2, 3, 4, 5, 10, 20)), 1.0, 0.0)
        yield Dial(("the tau of the pull",), (values,), pull=True)
    yield Dial(("clamp",), ((2.0, 2.5, 3.0, 5.0, 8.0, 10.0, 20.0, 30.0, 50.0, 70.0),), twist=clamp_response,
               words="the log ratio of a response is clamped at {:g} nats")  # fmt: skip
    yield Dial(("clamp",), ((0.5, 1.0, 2.0, 2.5, 3.0, 4.0, 5.0),), twist=clamp_token,
               words="the log ratio of a token is clamped at {:g} nats")  # fmt: skip
    yield Dial(("cap",), ((1.5, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0, 50.0),), twist=partial(capped, True),
               words="a dual clip: where the advantage is negative, the ratio is bounded at {:g}")  # fmt: skip
    yield Dial(("cap",), ((1.5, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0, 50.0),), twist=partial(capped, False),
               words="the ratio is capped at {:g}, beyond which it has no gradient")  # fmt: skip


@dataclass(frozen=True)
class Dial:
    """Numbers that are searched together.

    Attributes:
        names: options of the objective, or a name for the one number of `twist`.
        grids: values to try first, for each name.
        twist: maps value, batch and probe to the batch that the objective sees; None for options.
        words: of the slip, with the value.
        pull: the number is the temperature of the pull alone.
        narrow: the batch `narrow` as well, for a clip of responses.
    """

    names: tuple[str, ...]
    grids: tuple[tuple[float, ...], ...]
    twist: Any = None
    words: str = field(default="", compare=False)
    pull: bool = False
    narrow: tuple[str, ...] = ()

    @property
    def seen_on(self) -> tuple[str, ...]:
        """The special batches on which the numbers act."""
        if self.twist is clamp_response:
            return ("wide", "narrow", "long")
        return ("wide", *self.narrow) if "clip_low" in self.names else ("wide", "long")

    def start(self, objective: Objective) -> tuple[float, ...]:
        """The objective's own values, or infinity for a bound that it does not have."""
        if self.twist is not None or self.pull:
            return tuple(grid[-1] for grid in self.grids)
        return tuple(getattr(objective, name) for name in self.names)

    def turned(self, objective: Objective, values: tuple[float, ...]) -> tuple[Objective, Twist | None]:
        """The objective and the twist at these values; raises ValueError for values that the objective refuses."""
        if self.pull:
            return objective, partial(with_tau, values[0])
        if self.twist is not None:
            return objective, partial(self.twist, values[0])
        return replace(objective, **dict(zip(self.names, values, strict=True))), None  # type: ignore[type-var]

    def sentence(self, objective: Objective, values: tuple[float, ...]) -> str:
        """What is wrong with the loss, if these are its values."""
        if self.words:
            return self.words.format(values[0])
        if self.pull:
            if values[0] == 0:
                return "there is no pull to pi_old"
            tau: Any = objective.tau  # type: ignore[attr-defined]
            for words, value in (
                ("tau is not applied to the log ratio: as if it were 1", 1.0),
                ("the pull is twice as strong: tau counts twice", 2 * tau),
                ("the pull is half as strong: tau counts half, or the rewards are +-1, and not 0 and 1", tau / 2),
            ):
                if abs(values[0] / value - 1) < 1e-9:
                    return words
            wanted = f"{tau:g}" if isinstance(tau, int | float) else type(tau).__name__
            return f"the tau of the pull is {values[0]:g}, not {wanted}"
        own = self.start(objective)
        if len(values) == 2 and values == own[::-1] and own[0] != own[1]:
            return f"{self.names[0]} and {self.names[1]} are swapped: they are {values[0]:g} and {values[1]:g}"
        if isinstance(objective, CISPO) and values == (0.0, 0.0):
            return "the ratio is always 1: logp_old is logp itself, detached, or there is none"
        nats = isinstance(objective, PMDToken | GMPO)
        if len(values) == 2 and not nats and max(own) < 1 and values != own:
            in_nats = -math.log1p(-min(values[0], 0.99)), math.log1p(values[1])
            if all(abs(x / y - 1) < 0.02 for x, y in zip(in_nats, own, strict=True)):
                return f"the log ratio is clipped, not the ratio: at -{own[0]:g} and {own[1]:g} nats"
        said = []
        for name, value, before in zip(self.names, values, own, strict=True):
            gone, was_gone = is_open(name, value, nats), is_open(name, before, nats)
            if gone and not was_gone:
                said.append(f"there is no {'lower' if name == 'clip_low' else 'upper'} clip ({name} is {before:g})")
            elif value != before and not (gone and was_gone):
                said.append(f"{name} is {value:g}, not {before:g}")
        return ", and ".join(said)


SHARES = (0.0, 1e-4, 2e-4, 3e-4, 4e-4, 5e-4, 1e-3, 2e-3, 3e-3, 4e-3, 5e-3, 0.01, 0.02, 0.03, 0.05, 0.08, 0.1,
          0.12, 0.15, 0.18, 0.19, 0.2, 0.21, 0.22, 0.23, 0.24, 0.25, 0.26, 0.27, 0.28, 0.29, 0.3, 0.35, 0.4, 0.5, 0.6,
          0.7, 0.8, 0.9)  # fmt: skip
ABOVE_ONE = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 9.0, 10.0, 20.0, 50.0, 1e9)
NATS = (0.0, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0,
        50.0)  # fmt: skip
CREDIT_OPTIONS = {"k": (0.0, 0.01, 0.05, 0.2, 0.25, 0.5, 0.75, 1.0), "shift": (0.1, -0.2, 0.2, -0.5, 0.5)}
OTHER_OPTIONS = ("kl_share", "radius")


def is_open(name: str, value: float, nats: bool) -> bool:
    """Whether a clip is beyond all ratios of the probes, which go from e^-6 to e^6."""
    if name not in ("clip_low", "clip_high"):
        return False
    return value >= 6 if nats else value >= (0.9976 if name == "clip_low" else 403)


def with_advantage(advantage: Callable[[Groups], Tensor], batch: Batch, probe: Probe) -> Batch:
    """The batch with another advantage of the groups."""
    return replace(batch, advantage=advantage(probe.groups).flatten())


def with_changed_advantage(change: Callable[[Tensor, Probe], Tensor], batch: Batch, probe: Probe) -> Batch:
    """The batch with its advantage changed, see CHANGES."""
    return replace(batch, advantage=change(batch.advantage, probe))


def with_tau(tau: float, batch: Batch, probe: Probe) -> Batch:
    """The batch at another temperature of the pull: advantage, and the scale of a regression, stay."""
    # (A - tau s)^2 / (2 tau) has the gradient -(A - tau s); tau = 0 is its limit
    return replace(batch, tau=torch.full_like(batch.tau, tau if tau else 1e-12))


def by_token(batch: Batch, probe: Probe) -> Batch:
    """Every token as a response of its own."""
    rows, columns = batch.mask.nonzero(as_tuple=True)
    each = batch[rows]
    logp, old = (x[rows, columns][:, None] for x in (batch.logp, batch.logp_old))
    ref = None if batch.logp_ref is None else batch.logp_ref[rows, columns][:, None]
    one = torch.ones(len(rows), 1, dtype=torch.bool)
    return replace(each, logp=logp, logp_old=old, logp_ref=ref, mask=one, length=torch.ones_like(each.length))


def with_ratio(batch: Batch, log_ratio: Tensor) -> Batch:
    """The batch with these log ratios; they carry the gradient."""
    old = torch.where(batch.mask, batch.logp_old, 0.0)
    return replace(batch, logp=old + log_ratio, logp_old=old)


def scaled_ratio(scale: Callable[[Tensor, int], Tensor | float], batch: Batch, probe: Probe) -> Batch:
    """The log ratios of a response times a number that depends on its length [N, 1] and the padded width."""
    return with_ratio(batch, batch.log_ratio * scale(batch.length[:, None], batch.mask.shape[1]))


def spread_mean(batch: Batch, probe: Probe) -> Batch:
    """Give every token the mean log ratio of its response."""
    mean = batch.log_ratio.sum(1, keepdim=True) / batch.length[:, None]
    return with_ratio(batch, torch.where(batch.mask, mean, 0.0))


def prefix_ratio(batch: Batch, probe: Probe) -> Batch:
    """Give every token the log ratio of its response up to and including that token."""
    return with_ratio(batch, torch.where(batch.mask, batch.log_ratio.cumsum(1), 0.0))


def clamp_token(limit: float, batch: Batch, probe: Probe) -> Batch:
    """Log ratios of tokens within +-limit; those beyond have no gradient."""
    return with_ratio(batch, batch.log_ratio.clamp(-limit, limit))


def clamp_response(limit: float, batch: Batch, probe: Probe) -> Batch:
    """Log ratios of responses within +-limit; those beyond have no gradient."""
    s = batch.log_ratio
    total = s.sum(1, keepdim=True)
    bounded = total.clamp(-limit, limit)
    share = torch.where(batch.mask, bounded.detach() / batch.length[:, None], 0.0)
    return with_ratio(batch, torch.where(total.abs() <= limit, s, share))


def capped(negative_only: bool, cap: float, batch: Batch, probe: Probe) -> Batch:
    """Ratios of at most `cap`, or only where the advantage is negative."""
    s = batch.log_ratio
    acts = (batch.advantage[:, None] < 0) | (not negative_only)
    return with_ratio(batch, torch.where(acts, s.clamp_max(math.log(cap)), s))


@lru_cache(maxsize=1024)
def token_mean(sizes: tuple[int, ...], probe: Probe) -> Tensor:
    """[N] weights: the mean over the tokens of so many rows at a time, then the mean over these micro-batches."""
    tokens = torch.cat([part.sum().expand(len(part)) for part in probe.mask.sum(1).split(sizes)])
    return len(probe.mask) / (len(sizes) * tokens.double())


def by_rows(rows: int, probe: Probe) -> Tensor:
    """[N] weights: micro-batches of so many rows, the last one of what is left."""
    return token_mean(tuple(len(part) for part in probe.mask.split(rows)), probe)


def by_parts(parts: int, early: bool, of_prompts: bool, probe: Probe) -> Tensor:
    """[N] weights: so many micro-batches, of whole prompts or not; what is over goes to the first or to the last."""
    items = probe.reward if of_prompts else probe.mask
    sizes = [len(part) for part in items.tensor_split(parts)]
    rows = probe.reward.shape[1] if of_prompts else 1
    return token_mean(tuple(size * rows for size in (sizes if early else sizes[::-1]) if size), probe)


def shifted_old(by: int, fill: float | None, batch: Batch, probe: Probe) -> Batch:
    """logp_old moved by so many columns, around the end or with `fill` in the column that becomes free."""
    old = batch.logp_old.roll(by, 1)
    if fill is not None:
        old = torch.cat([torch.full_like(old[:, :by], fill), old[:, by:]], 1)
    return replace(batch, logp_old=old)


def shifted_mask(by: int, mask: Tensor) -> Tensor:
    """The mask moved by one column; what leaves the row is lost."""
    mask = mask.roll(by, 1)
    mask[:, 0 if by > 0 else -1] = False
    return mask


def masked(change: Callable[[Tensor], Tensor], own_length: bool, batch: Batch, probe: Probe) -> Batch:
    """The batch under another mask; `own_length`: each row counts with the length that it has there."""
    mask = change(batch.mask)
    length = mask.sum(1)
    weight = batch.weight * batch.length / length.clamp_min(1) if own_length else batch.weight
    return replace(batch, mask=mask, weight=weight)


def by_position(batch: Batch, probe: Probe) -> Batch:
    """Each token position with the same weight, and at it each response."""
    count = batch.mask.sum(0)
    share = len(batch.logp) / (count.clamp_min(1) * (count > 0).sum())
    return replace(batch, correction=share.expand_as(batch.logp).double())


def tempered(scale: float, scale_old: float, batch: Batch, probe: Probe) -> Batch:
    """Log-probabilities multiplied by these."""
    return replace(batch, logp=batch.logp * scale, logp_old=batch.logp_old * scale_old)


def at_reference(batch: Batch, probe: Probe) -> Batch:
    """The reference in place of pi_old."""
    return replace(batch, logp_old=probe.logp_ref)


TWISTS: dict[str, Twist] = {
    "the log ratio, or the reward, has the wrong sign": lambda batch, probe: replace(
        batch, logp=2 * batch.logp_old - batch.logp
    ),
    "padding counts: the mask is not applied": lambda batch, probe: replace(
        batch, mask=torch.ones_like(batch.mask), length=torch.full_like(batch.length, batch.mask.shape[1])
    ),
    "there is no pi_old: logp_old is missing": lambda batch, probe: replace(
        batch, logp_old=torch.zeros_like(batch.logp_old)
    ),
    "logp_old is logp itself, detached: the ratio is always 1": lambda batch, probe: replace(
        batch, logp_old=batch.logp.detach()
    ),
    "the reference is another: logp_old of the next response": lambda batch, probe: replace(
        batch, logp_old=batch.logp_old.roll(-1, 0)
    ),
    "pi_old is subtracted twice": lambda batch, probe: replace(batch, logp_old=2 * batch.logp_old),
    "logp_old is one token late": partial(shifted_old, 1, None),
    "logp_old is one token late, and 0 for the first": partial(shifted_old, 1, 0.0),
    "logp_old is one token early": partial(shifted_old, -1, None),
    "the advantage is divided by the length of the response": lambda batch, probe: replace(
        batch, advantage=batch.advantage / batch.length
    ),
    "the advantage is multiplied by the length of the response": lambda batch, probe: replace(
        batch, advantage=batch.advantage * batch.length
    ),
    **{
        f"{which} is divided by a temperature of {t:g}, and {other} is not": partial(
            tempered, *((1 / t, 1.0) if which == "logp" else (1.0, 1 / t))
        )
        for t in (0.6, 0.7, 0.8, 0.9)
        for which, other in (("logp", "logp_old"), ("logp_old", "logp"))
    },
    **{f"all log-probabilities are divided by a temperature of {t:g}": partial(tempered, 1 / t, 1 / t)
       for t in (0.5, 0.6, 0.7, 0.8, 0.9, 1.2, 1.5, 2.0)},
}  # fmt: skip

ROWS: dict[str, Callable[[Probe], Tensor]] = {
    "the mean over tokens is taken within each prompt, then over the prompts": lambda probe: by_rows(
        probe.reward.shape[1], probe
    ),
    **{f"the mean over tokens is taken within each micro-batch of {rows} rows, then over these": partial(by_rows, rows)
       for rows in (2, 3, 4, 5, 6, 8)},
    **{f"the mean over tokens is taken within each of {parts} micro-batches{of}, then over these{larger}":
       partial(by_parts, parts, early, of_prompts)
       for parts in (2, 3, 4) for of_prompts, of in ((False, ""), (True, " of whole prompts"))
       for early, larger in ((True, ""), (False, ": the last is larger"))},
    "each response is divided by the square root of its length": lambda probe: probe.mask.sum(1).double().rsqrt(),
}  # fmt: skip
"Weights of the responses, each with a mean of its own over tokens."

MASKS: dict[str, Callable[[Tensor], Tensor]] = {
    "the mask is one token late: it leaves out the first and counts one after the last": partial(shifted_mask, 1),
    "the mask is one token early: it leaves out the last": partial(shifted_mask, -1),
    "the last token of each response is left out": lambda mask: without_last(mask),
    "the first token of each response is left out": lambda mask: without_last(mask.flip(1)).flip(1),
    "the first column of the batch is left out": lambda mask: mask & (torch.arange(mask.shape[1]) > 0),
    "one token after the last of each response counts": lambda mask: mask | shifted_mask(1, mask),
}


def without_last(mask: Tensor) -> Tensor:
    """The mask without the last token of every row."""
    return mask & (mask.flip(1).cumsum(1).flip(1) > 1)


def deviation(groups: Groups) -> Tensor:
    """[P, G] reward minus the mean of its group."""
    return groups.reward - groups.reward.mean(1, keepdim=True)


def of_batch(groups: Groups, correction: int | None, constant: float = 0.0) -> Tensor:
    """Reward minus the mean of the batch, over its std or not."""
    centred = groups.reward - groups.reward.mean()
    return centred if correction is None else centred / (groups.reward.std(correction=correction) + constant)


def of_group_over_batch(groups: Groups, correction: int, centred: bool, constant: float = 0.0) -> Tensor:
    """Reward minus the mean of its group, over the std of the batch; `centred`: that of these differences."""
    rewards = deviation(groups) if centred else groups.reward
    return deviation(groups) / (rewards.std(correction=correction) + constant)


def whitened_again(groups: Groups, correction: int, constant: float = 0.0) -> Tensor:
    """The standardised reward, once more standardised over the batch."""
    advantage = with_constant(groups, constant, correction)
    return (advantage - advantage.mean()) / (advantage.std(correction=correction) + constant)


def with_constant(groups: Groups, constant: float, correction: int) -> Tensor:
    """The standardised reward with a small constant added to the std; 0 where rewards are equal."""
    return deviation(groups) / (groups.reward.std(1, keepdim=True, correction=correction) + constant).clamp_min(1e-12)


def with_variance(groups: Groups, constant: float, correction: int, power: float = 1.0) -> Tensor:
    """The centred reward over a power of the variance plus a constant; 0 where rewards are equal."""
    variance = groups.reward.var(1, keepdim=True, correction=correction) + constant
    return deviation(groups) / variance.clamp_min(1e-24) ** power


def over_range(groups: Groups, shift: Tensor) -> Tensor:
    """The shifted reward over the range of its group; 0 where rewards are equal."""
    reward = groups.reward
    return (reward - shift) / (reward.amax(1, keepdim=True) - reward.amin(1, keepdim=True)).clamp_min(1e-12)


def regrouped(change: Callable[[Tensor], Tensor], groups: Groups) -> Tensor:
    """The rows in the order of the prompts, cut into G groups of P, and each row's difference from a mean of these."""
    prompts, size = groups.reward.shape
    return change(groups.reward.reshape(size, prompts)).reshape(prompts, size)


def centred(reward: Tensor, dim: int, correction: int | None, constant: float = 0.0) -> Tensor:
    """The reward minus its mean along an axis, over its std or not."""
    minus = reward - reward.mean(dim, keepdim=True)
    return minus if correction is None else minus / (reward.std(dim, keepdim=True, correction=correction) + constant)


def above(limit: float, groups: Groups) -> Tensor:
    """Rewards of 1 above the limit, else 0."""
    return (groups.reward > limit).double()


def tiled(groups: Groups, correction: int | None, constant: float = 0.0) -> Tensor:
    """The reward minus the mean of the group n mod P in place of n // G for row n, over its std or not."""
    prompts, size = groups.reward.shape
    rows = torch.arange(prompts * size).remainder(prompts).view(prompts, size)
    minus = groups.reward - groups.reward.mean(1)[rows]
    return minus if correction is None else minus / (groups.reward.std(1, correction=correction) + constant)[rows]


def log_partitions(tau: float) -> dict[str, Callable[[Groups], Tensor]]:
    """Slips of the log partition, tau log of the mean of e^{r / tau}."""

    def others(groups: Groups) -> Tensor:
        """log of the sum of e^{r / tau} over the other responses to the prompt."""
        size = groups.reward.shape[1]
        scaled = (groups.reward / tau)[:, None, :].expand(-1, size, -1)
        return scaled.masked_fill(torch.eye(size, dtype=torch.bool), -torch.inf).logsumexp(2)

    def every(groups: Groups) -> Tensor:
        return (groups.reward / tau).logsumexp(1, keepdim=True)

    def count(groups: Groups) -> Tensor:
        return torch.tensor(float(groups.reward.shape[1])).double().log()

    def less(groups: Groups) -> Tensor:
        return torch.tensor(float(groups.reward.shape[1] - 1)).double().log()

    return {
        "log Z is the log of a sum, not of a mean: logsumexp lacks - log n": lambda g: g.reward - tau * others(g),
        "log Z is the log of a sum over all draws, not of a mean over the others": lambda g: g.reward - tau * every(g),
        "tau is missing before log Z": lambda g: g.reward - (others(g) - less(g)),
        "tau is missing before log Z, which includes the own draw": lambda g: g.reward - (every(g) - count(g)),
        "log Z has the wrong sign": lambda g: g.reward + tau * (others(g) - less(g)),
        "the reward is not divided by tau in log Z": lambda g: g.reward - tau * peers_log_mean_exp(g.reward),
        "log Z is that of the whole batch, not of the group": lambda g: (
            g.reward
            - tau * ((g.reward / tau).flatten().logsumexp(0) - torch.tensor(float(g.reward.numel())).double().log())
        ),
        "the sum over the n - 1 others is divided by n in log Z": lambda g: g.reward - tau * (others(g) - count(g)),
    }


def peers_log_mean_exp(reward: Tensor) -> Tensor:
    """[P, G] log of the mean of e^r over the other responses to the prompt."""
    rows = reward.exp()
    return ((rows.sum(1, keepdim=True) - rows) / (reward.shape[1] - 1)).log()


STDS = (("population", 0), ("sample", 1))
CONSTANTS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
SHIPPED = 1e-4
"The largest constant in a std that a framework adds: TRL 1e-4, verl 1e-6, open-instruct and slime 1e-8 or less."

ADVANTAGES: dict[str, Callable[[Groups], Tensor]] = {
    "there is no baseline": lambda groups: groups.reward,
    "the baseline is a constant, 0.5": lambda groups: groups.reward - 0.5,
    "the baseline is the mean of the batch, not of the group": partial(of_batch, correction=None),
    "the mean includes a response's own draw": partial(baselines.minus_mean, baseline="mean"),
    "the mean leaves out a response's own draw": partial(baselines.minus_mean, baseline="loo"),
    "the baseline is the median of the group": lambda groups: (
        groups.reward - groups.reward.median(1, keepdim=True).values
    ),
    "the baseline is the best reward of the group": lambda groups: groups.reward - groups.reward.amax(1, keepdim=True),
    "the baseline is the worst reward of the group": lambda groups: groups.reward - groups.reward.amin(1, keepdim=True),
    "the baseline is the sum over the others divided by n, not n - 1": lambda groups: (
        groups.reward - (groups.reward.sum(1, keepdim=True) - groups.reward) / groups.reward.shape[1]
    ),
    "the baseline is the mean of all other responses of the batch": lambda groups: (
        (groups.reward - groups.reward.mean()) * groups.reward.numel() / (groups.reward.numel() - 1)
    ),
    "the baseline is the sum over all responses divided by n - 1": lambda groups: (
        groups.reward - groups.reward.sum(1, keepdim=True) / (groups.reward.shape[1] - 1)
    ),
    "the baseline is the sum over all responses, not the mean": lambda groups: (
        groups.reward - groups.reward.sum(1, keepdim=True)
    ),
    "the baseline has the wrong sign: the mean is added": lambda groups: (
        groups.reward + groups.reward.mean(1, keepdim=True)
    ),
    "the std is the mean of those of the groups": lambda groups: (
        deviation(groups) / groups.reward.std(1, correction=0).mean()
    ),
    "the advantage is divided by the range of the group, not the std": lambda groups: over_range(
        groups, groups.reward.mean(1, keepdim=True)
    ),
    "the reward is scaled to [0, 1] in each group, in place of mean and std": lambda groups: over_range(
        groups, groups.reward.amin(1, keepdim=True)
    ),
    "the advantage is divided by the mean absolute deviation, not the std": lambda groups: (
        deviation(groups) / deviation(groups).abs().mean(1, keepdim=True).clamp_min(1e-12)
    ),
    "the mean is over the prompts, not over the responses to a prompt": lambda g: centred(g.reward, 0, None),
    "the groups are cut wrongly: rows are viewed as [G, P]":
        partial(regrouped, partial(centred, dim=1, correction=None)),
    "responses of different prompts are taken for neighbours: the mean is over every P-th row":
        partial(regrouped, partial(centred, dim=0, correction=None)),
    "the baselines are tiled, not repeated for each response: they are those of other prompts": partial(
        tiled, correction=None
    ),
    "the rewards are 1 above 0.5, else 0": lambda groups: centred(above(0.5, groups), 1, None),
    "the rewards are 1 above 0, else 0": lambda groups: centred(above(0, groups), 1, None),
    **{
        words.format(std): partial(advantage, correction=correction)
        for std, correction in STDS
        for words, advantage in dict[str, Any]({
            "the advantage is divided by the {} std": partial(with_constant, constant=0.0),
            "the advantage is divided by the variance, not the std ({})": partial(with_variance, constant=0.0),
            "the advantage is multiplied by the {} std, not divided": partial(with_variance, constant=0.0, power=-0.5),
        }).items()
    },
    **{
        words.format(std) + (f", to which {constant:g} is added" if constant else ""): partial(
            advantage, correction=correction, constant=constant
        )
        for constant in (0.0, *CONSTANTS)
        for std, correction in STDS
        for words, advantage in dict[str, Any]({
            "mean and {} std are those of the batch, not of the group": of_batch,
            "the mean is that of the group, the {} std that of the batch": partial(of_group_over_batch, centred=False),
            "the difference from the mean of the group is divided by its {} std over the batch": partial(
                of_group_over_batch, centred=True
            ),
            "the mean is that of the batch, the {} std that of the group": lambda groups, correction, constant: (
                of_batch(groups, None) / (groups.reward.std(1, keepdim=True, correction=correction) + constant)
            ),
            "there is no baseline, and the reward is divided by the {} std": lambda groups, correction, constant: (
                groups.reward / (groups.reward.std(1, keepdim=True, correction=correction) + constant).clamp_min(1e-12)
            ),
            "the advantages are whitened once more over the batch, by the {} std": whitened_again,
            "mean and {} std are over the prompts, not over the responses to a prompt":
                lambda g, **std: centred(g.reward, 0, **std),
            "the groups are cut wrongly: rows are viewed as [G, P] ({} std)":
                lambda g, **std: regrouped(partial(centred, dim=1, **std), g),
            "responses of different prompts are taken for neighbours: mean and {} std are over every P-th row":
                lambda g, **std: regrouped(partial(centred, dim=0, **std), g),
            "mean and {} std are tiled, not repeated for each response: they are those of other prompts": tiled,
            "the rewards are 1 above 0.5, else 0 ({} std)": lambda g, **std: centred(above(0.5, g), 1, **std),
        }).items()
    },
    **{
        f"{constant:g} is added to the {std} {what}": partial(advantage, constant=constant, correction=correction)
        for constant in CONSTANTS
        for std, correction in STDS
        for what, advantage in (("std", with_constant), ("variance", partial(with_variance, power=0.5)))
    },
}  # fmt: skip

CHANGES: dict[str, Callable[[Tensor, Probe], Tensor]] = {
    "negative advantages are set to 0": lambda advantage, probe: advantage.clamp_min(0),
    "positive advantages are set to 0": lambda advantage, probe: advantage.clamp_max(0),
    "the advantage is under absolute value": lambda advantage, probe: advantage.abs(),
    "only the sign of the advantage counts": lambda advantage, probe: advantage.sign(),
    "the advantages are those of the next row": lambda advantage, probe: advantage.roll(-1),
    "the advantages are those of the row before": lambda advantage, probe: advantage.roll(1),
    "the advantages are in reverse order": lambda advantage, probe: advantage.flip(0),
    "responses and prompts are mixed up: the advantages are not in the order of the rows": lambda advantage, probe: (
        advantage.view(probe.reward.shape).T.flatten()
    ),
    "each response has the advantage of the first one to its prompt": lambda advantage, probe: (
        advantage.view(probe.reward.shape)[:, :1].expand(probe.reward.shape).flatten()
    ),
    **{
        f"the advantages are clamped at +-{limit:g}": partial(
            lambda advantage, probe, limit: advantage.clamp(-limit, limit), limit=limit
        )
        for limit in (0.2, 0.25, 0.5, 1.0, 1.5, 2.0)
    },
    **{
        f"{which} advantages are multiplied by {factor:g}": partial(
            lambda advantage, probe, factor, sign: torch.where(sign * advantage > 0, factor * advantage, advantage),
            factor=factor, sign=sign,
        )
        for which, sign in (("negative", -1), ("positive", 1))
        for factor in (0.5, 2.0, 0.1, 0.25)
    },
}  # fmt: skip
"Changes of an advantage [N], whichever it is."


def batch_at_old(objective: Objective, probe: Probe, with_ref: bool) -> Batch:
    """The batch of an objective at pi = pi_old, with the budget of the longest response."""
    ref = probe.logp_ref if with_ref else None
    return credit(objective, probe.groups, probe.logp_old, probe.mask, ref, width=int(probe.mask.sum(1).max()))


at_old: Callable[[Any, Probe, bool], Batch] = lru_cache(maxsize=4096)(batch_at_old)
"The same for candidates, of which every search asks again; they have a hash, which somebody's objective may not."


def with_option(kind: Any, option: str, value: float, **options: Any) -> Objective:
    """An objective of this kind with one option at this value and the others as given."""
    made: Objective = kind(**options | {option: value})
    return made


class SumGMPO(GMPO):
    """GMPO whose bounded log ratios are added up, not averaged."""

    def loss(self, batch: Batch) -> Tensor:
        """[N, T] minus the gain of the response, spread evenly over its tokens."""
        s, up = batch.log_ratio, batch.advantage[:, None] >= 0
        bounded = torch.where(up, s.clamp_max(self.clip_high), s.clamp_min(-self.clip_low)).sum(1)
        part = -batch.advantage * bounded.exp() / batch.length
        return torch.where(batch.mask, part[:, None], 0.0)


class Attached(CISPO):
    """CISPO whose weight is differentiated too."""

    def loss(self, batch: Batch) -> Tensor:
        """[N, T] minus weight times advantage times log-probability, both with a gradient."""
        ratio = torch.minimum(batch.log_ratio.exp(), batch.log_ratio.new_tensor(1 + self.clip_high))
        if self.clip_low < 1:
            ratio = ratio.clamp_min(1 - self.clip_low)
        return torch.where(batch.mask, -ratio * batch.advantage[:, None] * batch.logp, 0.0)


class SquareOfSum(PMDToken):
    """PMDToken with the pull of PMD-mean, spread over the tokens."""

    def loss(self, batch: Batch) -> Tensor:
        """[N, T] minus the clipped gain of every token, plus the pull of its response over its length."""
        gain = super().loss(replace(batch, tau=torch.zeros_like(batch.tau)))
        pull = batch.tau / 2 * batch.log_ratio.sum(1) ** 2 / batch.length
        return gain + torch.where(batch.mask, pull[:, None], 0.0)


def larger_below(objective: Objective) -> Any:
    """A class of the objective's kind that takes the larger gain where the advantage is negative."""

    class Larger(type(objective)):  # type: ignore[misc]
        def loss(self, batch: Batch) -> Tensor:
            """-max(gain, clipped gain) = min(-gain, -clipped gain), which is the loss at the negative of both."""
            below = replace(batch, advantage=-batch.advantage)
            up, down = super().loss(batch), -super().loss(below)
            sign = batch.advantage >= 0
            return torch.where(sign if up.ndim == 1 else sign[:, None], up, down)

    return Larger


def weighted(objective: Objective, cap: float) -> Any:
    """A subclass of the objective's class. Its loss is multiplied by pi / pi_old, at most `cap`, without gradient."""

    class Weighted(type(objective)):  # type: ignore[misc]
        def loss(self, batch: Batch) -> Tensor:
            """The loss times the ratio of a token, or of a response."""
            found = super().loss(batch)
            log_ratio = batch.seq_log_ratio if found.ndim == 1 else batch.log_ratio
            return found * log_ratio.exp().clamp_max(cap).detach()

    return Weighted


def plain_clip(objective: Objective) -> Any:
    """A class of the objective's kind that clips the ratio whatever the sign of the advantage."""

    class Plain(type(objective)):  # type: ignore[misc]
        def loss(self, batch: Batch) -> Tensor:
            """The gain at the ratio bounded on both sides; PMDToken does so by itself."""
            if isinstance(self, PMDToken | CISPO | GMPO):
                return super().loss(batch)
            low, high = 1 - self.clip_low, 1 + self.clip_high
            if isinstance(self, GSPO):
                return -(batch.seq_log_ratio / batch.length).exp().clamp(low, high) * batch.advantage
            return torch.where(batch.mask, -batch.log_ratio.exp().clamp(low, high) * batch.advantage[:, None], 0.0)

    return Plain
