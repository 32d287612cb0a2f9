"""How far the log-probabilities of engine and trainer differ, and the monitor that ends a run if they do too much.

An engine uses other kernels than the trainer. PMD regresses a sum over the response, so small differences per token
add up to an error in the target.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from pmdkit.errors import ComponentDied

# The monitor of the mismatch.
WARN_BIAS, MAX_BIAS = 0.01, 0.10  # of the range of the target
MAX_BIAS_STEPS = 3  # in a row above MAX_BIAS: one may hold the few responses where rounding chose another expert
MAX_KL = 0.015  # nats per token: bfloat16 rounding reaches as much in absolute value, and far less with its sign


def mismatch_metrics(difference: Tensor, mask: Tensor) -> dict[str, float]:
    """How far trainer and engine differ on the same tokens under the same weights, nats."""
    on = torch.where(mask, difference, 0.0).double()
    return {
        "mismatch_mean": float(on.abs().sum() / mask.sum()),
        "mismatch_max": float(on.abs().max()),
        "mismatch_response": float(on.sum(1).abs().mean()),
        "mismatch_kl": float(-on.sum() / mask.sum()),
    }


class MismatchMonitor:
    r"""Judges the mismatch of each step by its effect on the regression target.

    PMD fits $\tau \log \pi / \pi_{old}$ to rewards less a baseline. Where the engine's $\log \pi_{old}$ is off, so is
    the target, by `target_bias` of its range:

    $$ \frac{\tau\, E\,|\sum_t (\log \pi_t^{trainer} - \log \pi_t^{engine})|}{r_{max} - r_{min}} $$

    Above WARN_BIAS it warns, once; above MAX_BIAS in MAX_BIAS_STEPS steps in a row the run ends. Under
    `rollout.old = "recompute"` the target has the trainer's numbers and no such bias. `mismatch_kl` answers another
    question, whether the engine draws from the distribution that the trainer scores: above MAX_KL it warns, once.

    Args:
        span: reward of a right answer less that of a wrong one.
        in_target: pi_old is the engine's.
    """

    def __init__(self, span: float, in_target: bool) -> None:
        self.span = span
        self.in_target = in_target
        self.step = -1  # the last one that was judged
        self.above = 0  # steps in a row above MAX_BIAS, the last one included
        self.warned: set[str] = set()

    def check(
        self, step: int, mismatch: Mapping[str, float], tau: Tensor, warn: Callable[[str], None]
    ) -> dict[str, float]:
        """Judge a step, once; returns `target_bias` where the engine's numbers are in the target.

        Args:
            step: of the run; one that was already judged is skipped.
            mismatch: as `mismatch_metrics` gives it; empty where it was not measured.
            tau: [n] temperatures of responses, NaN for objectives without one.
            warn: shows a sentence to the user.

        Raises:
            ComponentDied: above MAX_BIAS in MAX_BIAS_STEPS steps in a row.
        """
        if step == self.step or not mismatch:
            return {}
        self.step = step
        kl = mismatch["mismatch_kl"]
        if not abs(kl) <= MAX_KL:
            self.warn_once(
                "kl",
                f"engine log-probabilities differ from the trainer's by {kl:+.3f} nats per token on average; rounding "
                f"explains less than {MAX_KL}: the engine has other weights, another temperature, or a top_p below 1",
                warn,
            )
        if not self.in_target or bool(torch.isnan(tau).all()):
            return {}
        # tau E|sum_t difference_t| / (r_max - r_min)
        bias = tau.nanmean().item() * mismatch["mismatch_response"] / self.span
        self.above = 0 if bias <= MAX_BIAS else self.above + 1
        finding = (
            f"the log-probabilities of engine and trainer differ by {mismatch['mismatch_response']:.2g} nats in a "
            f"response, which moves its target by {bias:.1%} of the range of rewards"
        )
        advice = "set rollout.old = 'recompute', or check rollout.engine and model.dtype"
        if self.above == MAX_BIAS_STEPS:
            raise ComponentDied(
                f"{finding}, above {MAX_BIAS:.0%} in {MAX_BIAS_STEPS} steps in a row; the last checkpoint is intact: "
                f"{advice}"
            )
        if not bias <= WARN_BIAS:
            self.warn_once("bias", f"{finding}; at most {WARN_BIAS:.0%} is expected: {advice}", warn)
        return {"target_bias": bias}

    def warn_once(self, what: str, sentence: str, warn: Callable[[str], None]) -> None:
        """Warn, once in a run."""
        if what not in self.warned:
            self.warned.add(what)
            warn(sentence)
