"""The golden vectors through verl's registry, `ppo_loss` and `agg_loss`, on one CPU."""

import torch
from omegaconf import OmegaConf
from tensordict import TensorDict
from torch import Tensor
from verl.trainer.ppo.core_algos import get_adv_estimator_fn
from verl.utils import tensordict_utils as tu
from verl.workers.config import FSDPActorConfig
from verl.workers.utils.losses import ppo_loss

from pmdkit.objectives import traits
from pmdkit.testing.golden import Case, Result, groups_of, mask_of, objective_of, result, rows_of
from pmdkit_adapters.verl.config import FIXED, PMDPolicyLossConfig


def path(case: Case) -> Result | None:
    """Losses of the ministeps and the gradient [N][T_n], or None for a case that verl cannot express.

    verl has no responses without a verdict, gives its losses neither a reference policy nor one tau per prompt, may
    pass on a part of a step or of a group, and knows the tokens of a mini-batch but not those of a rollout batch.
    """
    facts = traits(objective_of(case))
    parts = facts.uses_reference or facts.whole_batch or facts.whole_groups
    if parts or case["norm"] == "tokens" or len(set(case["tau"] or [0.0])) > 1:
        return None
    if any(reward is None for row in case["reward"] for reward in row):
        return None
    logp = rows_of(case, "logp").requires_grad_()
    policy_loss = PMDPolicyLossConfig(
        pmd_objective=case["objective"],
        pmd_tau=case["tau"][0] if case["tau"] else None,
        pmd_options={"norm": case["norm"], **case["options"]},
        pmd_width=case["width"],
        pmd_run={name: wanted for name, (_, wanted, _) in FIXED.items()} | {"rollout_correction": None},
    )
    config = FSDPActorConfig(
        strategy="fsdp", rollout_n=len(case["reward"][0]), ppo_micro_batch_size_per_gpu=1, policy_loss=policy_loss
    )
    fields = batch_of(case, config)
    losses = []
    for rows in torch.arange(len(logp)).tensor_split(case["ministeps"]):
        loss = ministep(config, case, logp, fields, rows.tolist())
        loss.backward()
        losses.append(loss.detach())
    assert logp.grad is not None
    return result(losses, logp.grad, case)


def ministep(config: FSDPActorConfig, case: Case, logp: Tensor, fields: dict[str, Tensor], rows: list[int]) -> Tensor:
    """verl's own loss function on some rows, laid out as in its engines: nested, after a prompt of one token."""
    lengths = [len(case["logp"][row]) for row in rows]

    def nested(values: Tensor) -> Tensor:
        return torch.nested.as_nested_tensor(
            [values[row, :n] for row, n in zip(rows, lengths, strict=True)], layout=torch.jagged
        )

    tensors = {name: nested(values) for name, values in fields.items()}
    tensors["responses"] = nested(torch.zeros(logp.shape, dtype=torch.int64))
    tensors["prompts"] = nested(torch.zeros(len(logp), 1, dtype=torch.int64))
    data = TensorDict(tensors, batch_size=len(rows))
    tokens = int(fields["response_mask"].sum())
    tu.assign_non_tensor(data, dp_size=1, batch_num_tokens=tokens, global_batch_size=len(rows))
    # the engine's output is shifted left by one token: the last of a sequence predicts nothing
    last = logp.new_zeros(1)
    full = torch.cat([torch.cat([logp[row, :n], last]) for row, n in zip(rows, lengths, strict=True)])
    loss: Tensor = ppo_loss(config, {"log_probs": full}, data)[0]
    return loss


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
