"""When the mismatch of engine and trainer is said, and when it ends a run. How it is measured is provenance.py."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from pmdkit.errors import ComponentDied

TOLD, MOST = 0.01, 0.10  # of the range of the target
IN_A_ROW = 3  # steps above MOST: one may hold the few responses on which a rounding chose another expert
KL = 0.015  # nats per token: rounding in bfloat16 differs by as much without its sign, and by far less with it


class Alarm:
    r"""Judges the mismatch of each step by what it does to the target that is regressed.

    PMD fits $\tau \log \pi / \pi_{old}$ to rewards less a baseline. Where the engine's $\log \pi_{old}$ is off, so is
    the target, by `target_bias` of its range:

    $$ \frac{\tau\, E\,|\sum_t (\log \pi_t^{trainer} - \log \pi_t^{engine})|}{r_{max} - r_{min}} $$

    Above TOLD a warning is given, once; above MOST in IN_A_ROW steps the run ends. The target has the trainer's numbers
    under `rollout.old = "recompute"`, and no such bias. Whether the engine draws from another distribution than the
    trainer scores is another question, which `mismatch_kl` answers: above KL a warning is given, once.

    Args:
        span: reward of a right answer less that of a wrong one.
        in_target: the engine's numbers are pi_old.
    """

    def __init__(self, span: float, in_target: bool) -> None:
        self.span = span
        self.in_target = in_target
        self.step = -1  # the last one that was judged
        self.row = 0  # steps above MOST, the last one included
        self.told: set[str] = set()

    def hear(
        self, step: int, mismatch: Mapping[str, float], tau: Tensor, warn: Callable[[str], None]
    ) -> dict[str, float]:
        """Judge a step, once; returns `target_bias` where the engine's numbers are in the target.

        Args:
            step: of the run; a number that was judged already is passed over.
            mismatch: as `provenance.mismatch` gives it; empty where it was not measured.
            tau: [n] temperatures of responses, NaN for objectives without one.
            warn: told in a sentence.

        Raises:
            ComponentDied: above MOST in IN_A_ROW steps.
        """
        if step == self.step or not mismatch:
            return {}
        self.step = step
        kl = mismatch["mismatch_kl"]
        if not abs(kl) <= KL:
            self.tell(
                "kl",
                f"the engine gives its tokens {kl:+.3f} nats each against the trainer, on average; rounding leaves "
                f"less than {KL}: it has other weights, another temperature, or a top_p below 1",
                warn,
            )
        if not self.in_target or bool(torch.isnan(tau).all()):
            return {}
        bias = tau.nanmean().item() * mismatch["mismatch_response"] / self.span
        self.row = 0 if bias <= MOST else self.row + 1
        said = (
            f"the log-probabilities of engine and trainer differ by {mismatch['mismatch_response']:.2g} nats in a "
            f"response, which moves its target by {bias:.1%} of the range of rewards"
        )
        advice = "set rollout.old = 'recompute', or look at rollout.engine and model.dtype"
        if self.row == IN_A_ROW:
            raise ComponentDied(
                f"{said}, above {MOST:.0%} in {IN_A_ROW} steps in a row; the last checkpoint is intact: {advice}"
            )
        if not bias <= TOLD:
            self.tell("bias", f"{said}; at most {TOLD:.0%} is expected: {advice}", warn)
        return {"target_bias": bias}

    def tell(self, what: str, sentence: str, warn: Callable[[str], None]) -> None:
        """Once in a run."""
        if what not in self.told:
            self.told.add(what)
            warn(sentence)
