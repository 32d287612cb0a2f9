"""GRPO with its KL term: a pull to a reference policy on every token."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from pmdkit.objectives.batch import Batch
from pmdkit.objectives.grpo import GRPO
from pmdkit.options import NotNegative


@dataclass(frozen=True)
class GRPOKL(GRPO):
    r"""Follow the clipped policy gradient, held near a reference policy by a per-token estimate of the KL divergence.

    $$ L = L_{GRPO} + \beta\, E_{y\sim\pi_{old}}\sum_t k(s_t), \quad s_t = \log\tfrac{\pi}{\pi_{ref}}(y_t), \quad
       k_3(s) = e^{-s} - 1 + s, \quad k_2(s) = \tfrac12 s^2 $$

    Source: arXiv:2402.03300 (GRPO), k3 and beta = 0.04; names and "k2" as in verl (`kl_loss_coef`, `kl_loss_type`);
    "corrected-k3", k3 times the ratio to pi_old, is arXiv:2512.02556 (`use_bias_correction_kl` in TRL).
    Differs: the std is the population one unless `std="sample"`. Without `logp_ref` the anchor is pi_old. verl
    clamps s at +-20 and k3 at 10; here nothing is clamped, as in TRL.
    Shapes: as in GRPO; the KL term is in nats.

    Attributes:
        kl_loss_coef: beta, advantage units per nat, >= 0. At 0 this is GRPO.
        kl_loss_type: "k3", "k2" or "corrected-k3".

    Good values: kl_loss_coef = 0.04 in the source, 0.001 in verl; 0 in most later recipes.
    Watch: on-policy, k3 has the gradient of KL(pi_ref || pi), the other direction, and k2 that of KL(pi || pi_ref).
    Neither is weighted by the ratio, so off-policy they are biased. "corrected-k3" has the gradient of KL(pi || pi_ref)
    for any pi_old, given the tokens before. k3 grows like e^{-s} on a token that the policy has given up: 10 nats below
    the reference give 22,000.
    """

    uses_reference: ClassVar[bool] = True

    kl_loss_coef: NotNegative = 0.04
    kl_loss_type: Literal["k3", "k2", "corrected-k3"] = "k3"

    @property
    def equal_groups(self) -> str:  # type: ignore[override]
        """What a group of equal rewards does: "anchor" with a KL term, which pulls there too; "silent" without one."""
        return "anchor" if self.kl_loss_coef > 0 else "silent"

    def loss(self, batch: Batch) -> torch.Tensor:
        """[N, T] minus the clipped gain of every token, plus its share of the KL divergence."""
        anchor = batch.logp_old if batch.logp_ref is None else batch.logp_ref
        s = torch.where(batch.mask, batch.logp - anchor, 0.0)
        kl = s**2 / 2 if self.kl_loss_type == "k2" else torch.expm1(-s) + s
        if self.kl_loss_type == "corrected-k3":
            kl = batch.log_ratio.exp() * kl
        return super().loss(batch) + torch.where(batch.mask, self.kl_loss_coef * kl, 0.0)
