r"""The mismatch of engine and trainer: how far their log-probabilities differ, and the effect on the target.

An engine uses other kernels than the trainer. PMD fits $\tau \log \pi / \pi_{old}$, a sum over the response, so small
differences per token add up to an error in the target.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from pmdkit.errors import ComponentDied
from pmdkit.fit import RunContext, StepResult, TrainerCallback
from pmdkit.objectives import Batch

WARN_BIAS, MAX_BIAS = 0.01, 0.10  # shares of the target's range
MAX_BIAS_STEPS = 3  # consecutive steps above MAX_BIAS; one alone may be rounding that chose another expert
ROWS = 1024  # rows compared at a time: a float64 rectangle of all rows of a step may have a gigabyte
MAX_KL = 0.015  # nats per token: bfloat16 rounding reaches as much in absolute value, and far less with its sign


def mismatch_metrics(trainer: Tensor, engine: Tensor, mask: Tensor) -> dict[str, float]:
    """How far the log-probabilities [N, T] of trainer and engine differ on the same tokens, nats.

    Per token, the mean and largest absolute value of log pi_trainer - log pi_engine, and `mismatch_kl`, the mean of the
    negative, an estimate of KL(engine || trainer); per response, the mean absolute sum.
    """
    absolute, signed, response, largest = 0.0, 0.0, 0.0, torch.zeros((), dtype=torch.float64)
    for here, there, on in zip(*(x.split(ROWS) for x in (trainer, engine, mask)), strict=True):
        difference = torch.where(on, here.double() - there, 0.0)
        absolute += float(difference.abs().sum())
        signed += float(difference.sum())
        largest = torch.maximum(largest, difference.abs().max())
        response += float(difference.sum(1).abs().sum())
    tokens = int(mask.sum())
    return {
        "mismatch_mean": absolute / tokens,
        "mismatch_max": float(largest),
        "mismatch_response": response / len(mask),
        "mismatch_kl": -signed / tokens,
    }


class OffPolicyMean:
    r"""Mean of log pi/mu over tokens of an update's forward passes, nats, where pi_old is mu, the policy that drew.

    Called as a hook with log-probabilities under pi, the policy before the update. Responses that the update leaves out
    do not count. `sums` is the sum and the number of tokens.
    """

    def __init__(self) -> None:
        self.sums = torch.zeros(2, dtype=torch.float64)

    def __call__(self, batch: Batch, rows: Sequence[int], logp: Tensor) -> None:
        """Add some rows of a ministep's batch; `logp` is [n, T], or [n, 1] sums over tokens."""
        at = torch.tensor(rows)
        mask, logp = batch.mask[at], logp.detach().cpu().double()
        now = torch.where(mask, logp, 0.0) if logp.shape == mask.shape else logp
        moved = now.sum() - torch.where(mask, batch.logp_old[at].double(), 0.0).sum()
        self.sums += torch.stack([moved, mask.sum()])


def off_policy_parts(
    total: float | None, mismatch: float | None, staleness: float | None, sampler: float | None
) -> dict[str, float | None]:
    r"""How far the policy pi is from the draws, log pi/mu in nats per token, and the three parts that it is the sum of.

    $$ \log\frac{\pi}{\mu} = \log\frac{\pi_v}{e_v} + \log\frac{\pi}{\pi_v} + \log\frac{e_v}{\mu} $$

    The engine had weights of version v. pi_v is the trainer's policy with them, e_v the engine's: their difference is
    the mismatch. pi/pi_v is staleness, and e_v/mu the sampler (top_p, top_k, penalties), 0 for draws from all of e_v.

    Args: means over drawn tokens; None where one is not known. It follows from the others, if they are known.
    """
    parts = {"mismatch": mismatch, "staleness": staleness, "sampler": sampler}
    known = [x for x in parts.values() if x is not None]
    if total is None and len(known) == 3:
        total = sum(known)
    elif total is not None and len(known) == 2:
        parts = {name: total - sum(known) if x is None else x for name, x in parts.items()}
    return {"off_policy": total, **{f"off_policy_{name}": x for name, x in parts.items()}}


def target_bias(measured: Mapping[str, float], tau: Tensor, span: float) -> dict[str, float]:
    r"""`target_bias`, the error of the regression target, as a share of its range; empty where it has no meaning.

    $$ \frac{\tau\, E\,|\sum_t (\log \pi_t^{trainer} - \log \pi_t^{engine})|}{r_{max} - r_{min}} $$

    Args:
        measured: as `mismatch_metrics` gives it.
        tau: [N] temperatures of responses, NaN for objectives without one.
        span: reward of a right answer less that of a wrong one.
    """
    if "mismatch_response" not in measured or bool(torch.isnan(tau).all()):
        return {}
    return {"target_bias": tau.nanmean().item() * measured["mismatch_response"] / span}


class MismatchMonitor(TrainerCallback):
    """Judges the mismatch of each step.

    `target_bias` above WARN_BIAS: it warns, once; above MAX_BIAS in MAX_BIAS_STEPS steps in a row: the run ends. Steps
    without `target_bias` are skipped. `mismatch_kl` shows whether the engine draws from the distribution that the
    trainer scores: outside +-MAX_KL, it warns, once. A resumed run counts and warns from the start.
    """

    def __init__(self) -> None:
        self.above = 0  # steps in a row above MAX_BIAS, the last one included
        self.warned: set[str] = set()

    def on_step_end(self, run: RunContext, result: StepResult) -> None:
        """Judge a step by its row of metrics.

        Raises:
            ComponentDied: above MAX_BIAS in MAX_BIAS_STEPS steps in a row.
        """
        kl, bias = result.row.get("mismatch_kl"), result.row.get("target_bias")
        if kl is not None and not abs(kl) <= MAX_KL and "kl" not in self.warned:
            self.warned.add("kl")
            run.display.warn(
                f"engine log-probabilities differ from the trainer's by {kl:+.3f} nats per token on average; rounding "
                f"explains less than {MAX_KL}: the engine has other weights, another temperature, or a top_p below 1"
            )
        if bias is None:
            return
        self.above = 0 if bias <= MAX_BIAS else self.above + 1
        finding = (
            f"the log-probabilities of engine and trainer differ by {result.row['mismatch_response']:.2g} nats in a "
            f"response, which moves its target by {bias:.1%} of the range of rewards"
        )
        advice = "set rollout.old = 'recompute', or check rollout.engine and model.dtype"
        if self.above == MAX_BIAS_STEPS:
            raise ComponentDied(
                f"{finding}, above {MAX_BIAS:.0%} in {MAX_BIAS_STEPS} steps in a row; the last checkpoint is intact: "
                f"{advice}"
            )
        if not bias <= WARN_BIAS and "bias" not in self.warned:
            self.warned.add("bias")
            run.display.warn(f"{finding}; at most {WARN_BIAS:.0%} is expected: {advice}")
