"""The regime map: one frozen batch fitted for more and more passes, and the law that the fitted policy then obeys."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import torch

from pmdkit import theory
from pmdkit.fit import Backend
from pmdkit.loop import Rollouts
from pmdkit.objectives import Groups, credit, load_objective
from pmdkit.resolve import build, resolve
from pmdkit.sweeps import record
from pmdkit_lab.studies import experiments

Array = np.ndarray
ABOUT = "Passes over one frozen batch: when the fitted policy obeys Theorem 1, the length-weighted law, or neither."
ENV = "copy"  # rows of 3 symbols: 31 responses of 1 to 4 tokens, exact expectations; starts at chance, p = 1/81
DRAWS = 64  # responses to each prompt, of which 0.8 are right on average
PROMPTS = 3
OPTIONS: dict[str, Any] = {"env.length": 3, "schedule.group": DRAWS, "model.dimension": 32}
PASSES = tuple(2**k for k in range(12))
TAU = 0.05
SETTINGS: dict[str, dict[str, Any]] = {
    f"{source}, {name} {norm}": {"source": source, "name": name, "norm": norm}
    for source, name, norm in (
        ("full support", "pmd-mean", "none"),
        ("full support", "pmd-mean", "length"),
        ("full support", "pmd-part", "length"),
        ("draws", "pmd-mean", "length"),
        ("draws", "pmd-part", "length"),
    )
}


def regimes(seeds: Sequence[int] = experiments.SEEDS, passes: Sequence[int] = PASSES) -> dict[str, Any]:
    r"""Distance of the fitted policy to each law, by number of passes.

    $$ d = \Big(\frac{E_{\pi_{old}}(u - u^\star)^2}{E_{\pi_{old}}\, u^{\star 2}}\Big)^{1/2}, \quad
       u = \log\tfrac{\pi}{\pi_{old}} $$

    u* is the exact update (Theorem 1, PMD-part: Boltzmann) or Theorem 1's length-weighted form. 0 is the law itself, 1
    is pi_old. `pass_rate` is that of the fitted policy on the prompts of the batch; `right` and `wrong` are the mean
    log-ratios of right and wrong responses divided by those of the exact update, the share of the way covered by the
    fit.

    Args:
        seeds: seeds of the model, the prompts and the draws.
        passes: numbers of optimizer steps on the batch, increasing.
    """
    runs: list[dict[str, Any]] = []
    for seed in seeds:
        spec, objective = resolve("toy", ENV, {**experiments.MODEL, **OPTIONS, "schedule.lr": 1e-3, "run.seed": seed})
        backend = build(spec, objective)[1]
        start = deepcopy(backend.learner.model.state_dict())  # type: ignore[attr-defined]
        for label, setting in SETTINGS.items():
            backend.learner.model.load_state_dict(start)  # type: ignore[attr-defined]
            runs.append({"seed": seed, "setting": label, **fit(backend, setting, passes, seed, spec.schedule.lr)})
    return {"format": 1, "about": ABOUT, "env": ENV, "passes": list(passes), "runs": record.rounded(runs)}


def fit(
    backend: Backend, setting: dict[str, Any], passes: Sequence[int], seed: int, lr: float
) -> dict[str, list[float]]:
    """Fit one frozen batch and measure after each number of passes."""
    learner: Any = backend.learner
    learner.optimizer = type(learner.optimizer)(learner.model.parameters(), lr=lr)
    objective = load_objective(setting["name"], tau=TAU, norm=setting["norm"])
    held_out = backend.task.held_out(8)  # type: ignore[attr-defined]
    # different symbols, because a transformer without absolute positions cannot count repeated ones
    prompts = held_out[(held_out != held_out[:, :1]).any(1)][:PROMPTS]
    support = learner.rollout(prompts, None, seed)
    batch_rows = support if setting["source"] == "full support" else learner.rollout(prompts, DRAWS, seed)
    groups = Groups(backend.task.reward(batch_rows), batch_rows.mass, batch_rows.sampled)
    batch = credit(objective, groups, batch_rows.logp_old, batch_rows.mask, None, batch_rows.width)
    reward, pi = backend.task.reward(support).double().numpy(), support.mass.double().numpy()
    laws = solutions(support, setting["name"], reward, pi)
    curves: dict[str, list[float]] = {name: [] for name in (*laws, "pass_rate", "right", "wrong")}
    done = 0
    for count in passes:
        for _ in range(count - done):
            learner.update(objective, batch_rows, batch)
        done = count
        with torch.no_grad():
            moved = torch.where(support.mask, learner.logp(support) - support.logp_old, 0.0)
        u = np.asarray(moved.double().sum(1).view(support.mass.shape).numpy())  # [P, A] log pi/pi_old
        for name, law in laws.items():
            curves[name].append(float(np.sqrt((pi * (u - law) ** 2).sum() / (pi * law**2).sum())))
        first = next(iter(laws.values()))
        for name, members in (("right", reward > 0.5), ("wrong", reward < 0.5)):
            weight = np.where(members, pi, 0.0)
            curves[name].append(float((weight * u).sum() / (weight * first).sum()))
        curves["pass_rate"].append(float((pi * np.exp(u) * reward).sum(1).mean()))
    return curves


def solutions(support: Rollouts, name: str, reward: Array, pi: Array) -> dict[str, Array]:
    """law -> [P, A] log-ratios, nats; the exact update, without lengths, comes first."""
    if name == "pmd-part":
        return {"exact update": theory.pmd_part(pi, reward, TAU).log_ratio}
    length = support.mask.sum(1).view(support.mass.shape).double().numpy()
    return {
        "exact update": theory.pmd_mean(pi, reward, TAU).log_ratio,
        "length law": theory.pmd_mean(pi, reward, TAU, length=length).log_ratio,
    }
