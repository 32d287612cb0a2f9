"""The batches on which a loss is compared with an objective.

Three ordinary batches decide which objective the loss is. Each of the others tests one property that ordinary data
rarely show: ratios far from 1, clips of a response, long drifts, tool output inside a response, equal rewards, NaN off
the mask, negative rewards. All log-probabilities are multiples of 2^-19 and exact in float32, so a loss that computes
in float32 is off only by its own rounding.
"""

from dataclasses import dataclass, replace
from functools import cache, cached_property

import torch
from torch import Tensor

from pmdkit.objectives import Groups


@dataclass(frozen=True, eq=False)
class Probe:
    """Draws for P prompts, and a policy that has moved.

    Attributes:
        reward: [P, G], reward units.
        logp, logp_old, logp_ref: [P * G, T], nats.
        mask: [P * G, T] boolean.
        name: key of DIFFERS, empty for an ordinary batch.
    """

    reward: Tensor
    logp: Tensor
    logp_old: Tensor
    logp_ref: Tensor
    mask: Tensor
    name: str = ""

    @cached_property
    def groups(self) -> Groups:
        """The rewards, each draw with the same mass."""
        return Groups(self.reward, torch.full_like(self.reward, 1 / self.reward.shape[1]))

    @cached_property
    def factors(self) -> dict[str, float]:
        """Factors by which a reduction may differ from the mean over prompts of the mean over responses."""
        rows, width = self.mask.shape
        prompts, size = self.reward.shape
        tokens, longest = int(self.mask.sum()), int(self.mask.sum(1).max())
        return {
            "": 1.0,
            "a sum over the responses, not a mean": rows,
            "a sum over the prompts, not a mean": prompts,
            "a sum over the responses to a prompt, not a mean": size,
            "divided by the padded width": 1 / width,
            "divided by the longest response of the batch": 1 / longest,
            "divided by the tokens of the batch (norm tokens)": rows / tokens,
            "divided by the tokens of the batch, squared": (rows / tokens) ** 2,
            PAIRS: size / (size - 1),
            OWN_DRAW: (size - 1) / size,
        }


OWN_DRAW = "(n - 1) / n as large for n responses to a prompt: the mean includes a response's own draw"
PAIRS = "multiplied by n / (n - 1) for n responses to a prompt"

DIFFERS = {
    "holes": "it differs where the mask has a hole",
    "silent": "it differs in a group of equal rewards",
    "negative": "it differs for rewards outside [0, 1]",
    "wide": "it differs where the ratio of a token is far from 1: a clip or a bound",
    "narrow": "it differs by the mean log ratio of a response: a clip or a bound",
    "long": "it differs where the log ratio of a response is tens of nats: a clamp or a bound",
    "nan": "it differs where NaN stands off the mask",
}
"What to say of a loss that agrees with an objective on the ordinary batches, and not on the one of that name."

NOT_FINITE = {
    "silent": "a group of equal rewards gives NaN: 0 / 0, unless the std has a small constant or `where`",
    "long": "it overflows where the log ratio of a response is tens of nats",
    "nan": "NaN off the mask reaches it, since NaN times 0 is NaN: select by `where(mask, ..., 0)`, do not multiply",
}
"The same where the loss or its gradient is not finite."


@cache
def ordinary() -> tuple[Probe, ...]:
    """Three ragged, stale, padded batches that differ in prompts, responses and lengths; ratios 0.67 to 1.49."""
    return tuple(random_probe(seed, *shape) for seed, shape in enumerate([(2, 4, 5, 2), (3, 3, 4, 1), (2, 5, 6, 3)]))


@cache
def near() -> tuple[Probe, ...]:
    """The ordinary batches with a policy that has hardly moved: no clip is reached, and every pull is small."""
    return tuple(replace(p, logp=p.logp_old + (p.logp - p.logp_old) / 2048) for p in ordinary())


@cache
def flat() -> tuple[Probe, ...]:
    """Every log-probability is the same, about 0, and every response has three tokens.

    So all ratios are 1, and a shift, a length rule or a pull changes nothing: the gradient of a row is minus its
    advantage times one number for all rows.
    """
    made = []
    for probe in ordinary():
        logp = torch.full((len(probe.logp), 3), -(2.0**-30), dtype=torch.float64)
        made.append(Probe(probe.reward, logp, logp, logp, torch.ones_like(logp, dtype=torch.bool)))
    return tuple(made)


@cache
def special() -> tuple[Probe, ...]:
    """One batch for each key of DIFFERS, in their order."""
    return holes(), silent(), negative(), wide(), narrow(), long(), nan()


def random_probe(seed: int, prompts: int, size: int, tokens: int, padding: int) -> Probe:
    """Rewards in {0, 1} for seed 0, else graded; log ratios of tokens up to 0.4 nats."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape: int, digits: int = 10) -> Tensor:
        return quantised(torch.rand(*shape, generator=generator, dtype=torch.float64), digits)

    reward = uniform(prompts, size, digits=6)
    if seed == 0:
        reward = torch.tensor([[1.0, 0, 0, 1], [0, 1, 0, 0]], dtype=torch.float64)
    length = torch.randint(1, tokens + 1, (prompts * size,), generator=generator)
    length[0] = tokens
    mask = torch.arange(tokens + padding) < length[:, None]
    old = -0.5 - 2 * uniform(*mask.shape)
    logp = old + quantised(0.8 * (uniform(*mask.shape) - 0.5), 8)
    return Probe(reward, logp, old, quantised(old + 0.6 * (uniform(*mask.shape) - 0.5), 10), mask)


def holes() -> Probe:
    """Responses with tokens of a tool in the middle and at the start; what is there is finite and means nothing."""
    probe = random_probe(3, 3, 2, 8, 1)
    mask = probe.mask.clone()
    mask[:, 2:4] = False
    mask[:3, 0] = False
    mask[:, 4] = True
    return replace(probe, mask=mask, name="holes")


def silent() -> Probe:
    """A mixed group, and three of equal rewards: all wrong, all right, and 0.25."""
    probe = random_probe(4, 4, 6, 4, 1)
    reward = probe.reward.clone()
    for prompt, value in enumerate((0.0, 1.0, 0.25)):
        reward[prompt] = value
    return replace(probe, reward=reward, name="silent")


def negative() -> Probe:
    """Rewards of +-1, graded rewards below 0, and graded rewards above 1."""
    probe = random_probe(5, 3, 4, 5, 1)
    graded = 2 * probe.reward
    reward = torch.stack([torch.tensor([1.0, -1.0, -1.0, 1.0], dtype=torch.float64), -graded[1], 1 + graded[2]])
    return replace(probe, reward=reward, name="negative")


def nan() -> Probe:
    """NaN in every log-probability off the mask."""
    probe = random_probe(6, 2, 3, 5, 2)

    def spoiled(x: Tensor) -> Tensor:
        return torch.where(probe.mask, x, torch.nan)

    logp, old, ref = spoiled(probe.logp), spoiled(probe.logp_old), spoiled(probe.logp_ref)
    return replace(probe, logp=logp, logp_old=old, logp_ref=ref, name="nan")


def wide() -> Probe:
    """Token log ratios from -6 to 6, in steps of 0.005 nats up to 0.75 and of 0.02 beyond, under both signs of the
    advantage: the bounds 1.2 and 1.21 lie apart, and so do 5 and 4.9."""
    inner, outer = torch.arange(1, 152) * 0.005, 0.75 + torch.arange(1, 266) * 0.02
    grid = torch.cat([-outer.flip(0), -inner.flip(0), inner, outer]).double()
    return by_response(quantised(grid, 12).reshape(-1, 4), "wide")


def narrow() -> Probe:
    """Mean log ratios of responses from -1.5 to 1.5, in steps of 3e-5 up to 1e-3, since GSPO clips at 3e-4 and 4e-4."""
    fine = torch.arange(1, 34).double() / 2**15
    mean = torch.cat([fine, quantised(torch.logspace(-3, 0.176, 47, dtype=torch.float64), 15)])
    mean = torch.cat([-mean.flip(0), mean])
    generator = torch.Generator().manual_seed(7)
    around = quantised(0.2 * torch.rand(len(mean), 2, generator=generator, dtype=torch.float64), 10)
    return by_response(mean[:, None] + torch.cat([around, -around], 1), "narrow")


def long() -> Probe:
    """Responses of 24 tokens with log ratios of -80 to 80 nats in all, and ratios of tokens within e^-4 and e^4."""
    size = torch.tensor([1.5, 3.0, 6.0, 9.0, 12.0, 18.0, 24.0, 33.0, 42.0, 54.0, 66.0, 80.0], dtype=torch.float64)
    generator = torch.Generator().manual_seed(8)
    around = quantised(torch.rand(2 * len(size), 12, generator=generator, dtype=torch.float64) / 2, 8)
    mean = quantised(torch.cat([-size.flip(0), size]) / 24, 10)
    return by_response(mean[:, None] + torch.cat([around, -around], 1), "long")


def by_response(log_ratio: Tensor, name: str) -> Probe:
    """A batch in which every row of `log_ratio` occurs twice, once with a good reward and once with a bad one.

    Groups have eight responses; the rows are dealt to them at random. Log-probabilities stay below 0.
    """
    good, bad = 4, 4
    rows = len(log_ratio)
    prompts = -(-rows // good)
    log_ratio = torch.cat([log_ratio, log_ratio[: prompts * good - rows]])
    generator = torch.Generator().manual_seed(len(log_ratio))
    best = torch.tensor([1.0, 1.0, 0.75, 0.5], dtype=torch.float64)[torch.arange(prompts) % 4]
    worst = torch.tensor([0.0, 0.0, 0.25, 0.125], dtype=torch.float64)[torch.arange(prompts) % 4]
    reward = torch.cat([best[:, None].expand(prompts, good), worst[:, None].expand(prompts, bad)], 1)
    dealt = [log_ratio[torch.randperm(len(log_ratio), generator=generator)].view(prompts, 4, -1) for _ in range(2)]
    drift = torch.cat(dealt, 1).flatten(0, 1)
    top = -0.25 - quantised(torch.rand(drift.shape, generator=generator, dtype=torch.float64) / 2, 10)
    logp, old = top + drift.clamp_max(0), top - drift.clamp_min(0)
    ref = quantised(old - 0.25 + torch.rand(drift.shape, generator=generator, dtype=torch.float64) / 4, 10)
    return Probe(reward, logp, old, ref, torch.ones_like(drift, dtype=torch.bool), name)


def quantised(x: Tensor, digits: int) -> Tensor:
    """x rounded to a multiple of 2^-digits."""
    return (x * 2**digits).round() / 2**digits


def rows_apart(wanted: Tensor, found: Tensor) -> Tensor:
    """[N] distance of two gradients row by row, each relative to its own length, or the median one if that is larger.

    So a row with a ratio of e^80 does not hide the others.
    """
    norms = torch.stack([wanted.norm(dim=1), found.norm(dim=1)])
    own = norms.amax(0)
    # where most rows are silent, the median is 0, and what is left of a row below 1e-12 is rounding
    scale = torch.maximum(own, own.median().clamp_min(1e-30))
    scale[own < 1e-12] = 1.0
    return (wanted - found).norm(dim=1) / scale
