"""Tabular policies: one logit per arm, or logits that are linear in features. Both give [P, A] log-probabilities."""

import torch
from torch import Tensor, nn


class TablePolicy(nn.Module):
    """One logit per context and arm: any policy can be represented, and prompts do not share anything."""

    def __init__(self, log_policy: Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(log_policy.clone().double())

    def forward(self, contexts: Tensor) -> Tensor:
        """[P, A] log-probabilities of the contexts [P]."""
        return self.logits[contexts].log_softmax(1)

    @torch.no_grad()
    def assign(self, contexts: Tensor, log_policy: Tensor) -> None:
        """Set the policy of some contexts outright; what no network can do."""
        self.logits[contexts] = log_policy


class LinearPolicy(nn.Module):
    """Logits = initial log-policy + features @ theta: what is learned on one prompt moves the others, also wrongly."""

    initial: Tensor
    features: Tensor

    def __init__(self, log_policy: Tensor, features: Tensor) -> None:
        super().__init__()
        self.register_buffer("initial", log_policy.clone().double())
        self.register_buffer("features", features.clone().double())
        self.theta = nn.Parameter(torch.zeros(features.shape[-1], dtype=torch.float64))

    def forward(self, contexts: Tensor) -> Tensor:
        """[P, A] log-probabilities of the contexts [P]."""
        return (self.initial[contexts] + self.features[contexts] @ self.theta).log_softmax(1)


Policy = TablePolicy | LinearPolicy
