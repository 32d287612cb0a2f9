"""The golden vectors through verl's registry, `ppo_loss`, `agg_loss`, micro-batches and ranks, on one CPU.

Each case runs whole and in three unequal micro-batches, on one rank and on two; the worst result counts.
"""

from typing import Any

import torch
from omegaconf import OmegaConf
from tensordict import TensorDict
from torch import Tensor
from verl.trainer.ppo.core_algos import get_adv_estimator_fn
from verl.utils import tensordict_utils as tu
from verl.workers.config import FSDPActorConfig
from verl.workers.utils.losses import ppo_loss

from pmdkit.adapters.verl.config import FIXED, PMDPolicyLossConfig
from pmdkit.objectives import traits
from pmdkit.testing.golden import Case, Result, groups_of, largest_error, mask_of, objective_of, result, rows_of

SPLITS = [(1, 1), (1, 3), (2, 1), (2, 3)]  # ranks, micro-batches of each


def path(case: Case) -> Result | None:
    """Losses of the ministeps and the gradient [N][T_n], or None for a case that verl cannot express.

    verl has no responses without a verdict, gives its losses neither a reference policy nor one tau per prompt, may
    pass on a part of a step, and knows the tokens of a mini-batch but not those of a rollout batch.
    """
    facts = traits(objective_of(case))
    if facts.uses_reference or facts.whole_batch or case["norm"] == "tokens" or len(set(case["tau"] or [0.0])) > 1:
        return None
    if any(reward is None for row in case["reward"] for reward in row):
        return None
    return max((through(case, *split) for split in SPLITS), key=lambda found: largest_error(found[0], found[1], case))


def through(case: Case, ranks: int, micro_batches: int) -> Result:
    """Run a case in micro-batches on several ranks: gradients are summed within a rank and averaged over ranks."""
    logp = rows_of(case, "logp").requires_grad_()
    config = actor_config(case)
    fields = batch_of(case, config)
    losses = []
    for rows in torch.arange(len(logp)).tensor_split(case["ministeps"]):
        shares = []
        for rank_rows in rows.tensor_split(ranks):
            for part in unequal(rank_rows, micro_batches):
                loss, _ = micro_batch(config, case, logp, fields, part, ranks, len(rows))
                (loss / ranks).backward()
                shares.append(loss.detach() / ranks)
        losses.append(torch.stack(shares).sum())
    assert logp.grad is not None
    return result(losses, logp.grad, case)


def micro_batch(
    config: FSDPActorConfig, case: Case, logp: Tensor, fields: dict[str, Tensor], part: Tensor, ranks: int, rows: int
) -> tuple[Tensor, dict[str, Any]]:
    """verl's own loss function on some rows, laid out as in its engines: nested, after a prompt of one token."""
    lengths = [len(case["logp"][row]) for row in part.tolist()]

    def nested(values: Tensor) -> Tensor:
        return torch.nested.as_nested_tensor(
            [values[row, :n] for row, n in zip(part.tolist(), lengths, strict=True)], layout=torch.jagged
        )

    tensors = {name: nested(values) for name, values in fields.items()}
    tensors["responses"] = nested(torch.zeros(logp.shape, dtype=torch.int64))
    tensors["prompts"] = nested(torch.zeros(len(logp), 1, dtype=torch.int64))
    data = TensorDict(tensors, batch_size=len(part))
    tokens = int(fields["response_mask"].sum())
    tu.assign_non_tensor(data, dp_size=ranks, batch_num_tokens=tokens, global_batch_size=rows)
    # the engine's output is shifted left by one token: the last of a sequence predicts nothing
    last = logp.new_zeros(1)
    full = torch.cat([torch.cat([logp[row, :n], last]) for row, n in zip(part.tolist(), lengths, strict=True)])
    return ppo_loss(config, {"log_probs": full}, data)


def batch_of(case: Case, config: FSDPActorConfig) -> dict[str, Tensor]:
    """The inputs of verl's losses, [N, T]: mask, old log-probabilities and the registered estimator's advantages."""
    mask, groups = mask_of(case), groups_of(case)
    rewards = torch.zeros(mask.shape, dtype=torch.float64)
    rewards[:, 0] = groups.reward.flatten()
    uid = [f"prompt {p}" for p in range(len(groups.reward)) for _ in range(groups.reward.shape[1])]
    settings = {name: getattr(config.policy_loss, name) for name in ("pmd_objective", "pmd_tau", "pmd_options")}
    algorithm = OmegaConf.create({"pmd": {**settings, "pmd_group": groups.reward.shape[1]}})
    advantages, _ = get_adv_estimator_fn("pmd")(
        token_level_rewards=rewards, response_mask=mask, index=uid, config=algorithm
    )
    return {"response_mask": mask.long(), "old_log_probs": rows_of(case, "logp_old"), "advantages": advantages}


def actor_config(case: Case) -> FSDPActorConfig:
    """verl's ActorConfig for the case."""
    loss = PMDPolicyLossConfig(
        pmd_objective=case["objective"],
        pmd_tau=case["tau"][0] if case["tau"] else None,
        pmd_options={"norm": case["norm"], **case["options"]},
        pmd_width=case["width"],
        pmd_run={name: wanted for name, (_, wanted, _) in FIXED.items()} | {"rollout_correction": None},
    )
    return FSDPActorConfig(
        strategy="fsdp", rollout_n=len(case["reward"][0]), ppo_micro_batch_size_per_gpu=1, policy_loss=loss
    )


def unequal(rows: Tensor, count: int) -> list[Tensor]:
    """Cut the rows into `count` parts, the first the longest; one part if there are fewer rows than that."""
    if count == 1 or len(rows) < count:
        return [rows]
    return [rows[: len(rows) - count + 1], *rows[len(rows) - count + 1 :].split(1)]
