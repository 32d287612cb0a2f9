"""From the words of a verl configuration to an objective of pmdkit, and which objectives verl can carry."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from omegaconf import DictConfig, OmegaConf

from pmdkit.errors import UsageError
from pmdkit.objectives import Objective, load_objective, traits


def plain(value: Any) -> Any:
    """OmegaConf's containers as dicts and lists."""
    if OmegaConf.is_config(value):
        return OmegaConf.to_container(value, resolve=True)
    return dict(value) if isinstance(value, Mapping) else value


def objective_of(objective: str, tau: Any, options: Any) -> Objective:
    """The objective of these words.

    Args:
        objective: a key of OBJECTIVES, or "my.py:MyLoss".
        tau: temperature in reward units; {"rule": name, ...} for one per prompt; None for an objective without one.
        options: other fields of the objective: norm, scale, baseline, target_cap ...

    Raises:
        UsageError: verl cannot give this objective what it needs.
        ValueError: a name or an option that does not exist.
    """
    words = {**plain(options or {}), **({} if tau is None else {"tau": plain(tau)})}
    return build(objective, json.dumps(words, sort_keys=True))


@cache
def build(name: str, words: str) -> Objective:
    """The objective, made once for each configuration."""
    options = json.loads(words)
    objective = load_objective(name, **options)
    if hasattr(objective, "tau") and "tau" not in options:
        raise UsageError(f"{name} got no tau; set actor_rollout_ref.actor.policy_loss.pmd_tau, in reward units")
    facts = traits(objective)
    if facts.whole_groups:
        raise UsageError(
            f"{name} compares the responses of a group, and verl's micro-batches cut groups; "
            "expected an objective that looks at one response, such as pmd-mean"
        )
    if facts.uses_reference:
        raise UsageError(
            f"{name} reads a reference policy; verl's policy losses are given none: take another objective"
        )
    if objective.norm == "tokens":
        raise UsageError(
            f"{name} has norm 'tokens', which divides by the tokens of the rollout batch; verl's losses know those of "
            "a mini-batch only: set pmd_options.norm to length, none or max"
        )
    return objective


def estimator_objective(algorithm: DictConfig) -> tuple[Objective, int]:
    """The objective of an advantage estimator, and the responses per prompt, from verl's `algorithm` node."""
    node = algorithm.get("pmd", None) if algorithm is not None else None
    if node is None:
        raise UsageError("algorithm.pmd is missing; add +pmd=mean to verl's overrides, see docs/use/verl.md")
    return objective_of(node.objective, node.tau, node.options), int(node.group)
