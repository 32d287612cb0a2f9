"""The tabular learner: enumerates or draws arms, and fits its policy exactly, by regression or by gradient steps."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from pmdkit import population
from pmdkit.bandit import newton
from pmdkit.bandit.policy import LinearPolicy, Policy, TablePolicy
from pmdkit.learner import Rollouts
from pmdkit.objectives import Objective, total
from pmdkit.objectives.vocabulary import Batch
from pmdkit.randomness import generator

Update = Literal["exact", "regression", "gradient"]


class BanditLearner:
    """A Learner whose responses are arms.

    Args:
        log_policy: [S, A] initial log-probabilities; also the reference policy.
        features: [S, A, d] for a log-linear policy, or None for a table.
        update: "exact" sets the population solution, "regression" finds it by Newton, "gradient" takes optimizer steps.
        lr, optimizer, passes: of "gradient"; `passes` steps on every ministep.
    """

    def __init__(
        self,
        log_policy: Tensor,
        features: Tensor | None = None,
        update: Update = "exact",
        lr: float = 0.05,
        optimizer: Literal["adam", "adamw", "sgd"] = "adam",
        passes: int = 1,
    ) -> None:
        self.version = 0
        self.reference = log_policy.double()
        self.policy: Policy = TablePolicy(log_policy) if features is None else LinearPolicy(log_policy, features)
        self.mode = update
        self.passes = passes
        kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
        self.optimizer = kinds[optimizer](self.policy.parameters(), lr=lr)

    @torch.no_grad()
    def rollout(self, prompts: Tensor, group: int | None, seed: int) -> Rollouts:
        """Draw `group` arms per context by inverse transform, or enumerate all arms with mass pi_old."""
        log_policy = self.policy(prompts)
        if group is None:
            arms = torch.arange(log_policy.shape[1]).expand(len(prompts), -1)
            mass = log_policy.exp()
        else:
            uniform = torch.from_numpy(generator(seed, "arms").random((len(prompts), group)))
            ladder = log_policy.exp().cumsum(1)
            arms = torch.searchsorted(ladder / ladder[:, -1:], uniform, right=True).clamp_max(log_policy.shape[1] - 1)
            mass = torch.full((len(prompts), group), 1.0 / group, dtype=torch.float64)
        rows = arms.reshape(-1, 1)
        return Rollouts(
            prompts=prompts,
            responses=rows,
            logp_old=log_policy.gather(1, arms).view(-1, 1),
            mask=torch.ones_like(rows, dtype=torch.bool),
            mass=mass,
            sampled=group is not None,
            seed=seed,
            version=self.version,
            width=1,
            logp_ref=self.reference[prompts].gather(1, arms).view(-1, 1),
        )

    def logp(self, rollouts: Rollouts) -> Tensor:
        """[N, 1] log-probability of each arm under the current policy, with gradient."""
        arms = rollouts.responses.view(len(rollouts.prompts), -1)
        return self.policy(rollouts.prompts).gather(1, arms).view(-1, 1)

    def log_policy(self) -> Tensor:
        """[S, A] the current policy of every context."""
        with torch.no_grad():
            return self.policy(torch.arange(len(self.reference)))

    def update(self, objective: Objective, rollouts: Rollouts, batch: Batch) -> dict[str, float]:
        """One ministep in the learner's mode. `loss` is before the update; Newton adds its number of `sweeps`."""
        if self.mode == "gradient":
            for turn in range(self.passes):
                loss = total(objective, replace(batch, logp=self.logp(rollouts)))
                self.optimizer.zero_grad()
                loss.backward()
                norm = torch.nn.utils.get_total_norm([p.grad for p in self.policy.parameters() if p.grad is not None])
                if turn == 0:
                    report = {"loss": loss.item(), "grad_norm": norm.item()}
                self.optimizer.step()
            return report
        if rollouts.sampled:
            raise ValueError(f"update is '{self.mode}' on drawn arms; it needs the full support: leave group out")
        logp = self.logp(rollouts)
        loss = total(objective, replace(batch, logp=logp))
        (pull,) = torch.autograd.grad(loss, logp)
        shape = rollouts.mass.shape
        pi, pull = logp.detach().exp().view(shape), pull.view(shape)
        report = {"loss": loss.item(), "grad_norm": (pull - pull.sum(1, keepdim=True) * pi).norm().item()}
        if self.mode == "regression":
            sweeps = newton.regress(self.policy, rollouts.prompts, objective, batch)
            return report | {"sweeps": float(sweeps)}
        assert isinstance(self.policy, TablePolicy)
        tau = batch.tau.view(shape)[:, 0]
        logp_old = rollouts.logp_old.view(shape)
        logp_ref = self.reference[rollouts.prompts]
        change = population.solve(objective, logp_old, logp_ref, batch.advantage.view(shape), tau).log_ratio
        self.policy.assign(rollouts.prompts, logp_old + torch.from_numpy(np.ascontiguousarray(change)))
        return report

    def state_dict(self) -> dict[str, Any]:
        """The policy's tensors, the optimizer's, and the version."""
        return {
            "model": self.policy.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "version": self.version,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.policy.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.version = state["version"]

    def save_pretrained(self, path: str | Path) -> None:
        """Write model.safetensors and config.json."""
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        save_file({k: v.contiguous() for k, v in self.policy.state_dict().items()}, folder / "model.safetensors")
        contexts, arms = self.reference.shape
        about = {"kind": type(self.policy).__name__, "contexts": contexts, "arms": arms}
        (folder / "config.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
