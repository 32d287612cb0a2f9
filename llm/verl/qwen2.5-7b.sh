#!/usr/bin/env bash
# The paper's run on Qwen2.5-7B inside verl 0.9.1: PMD-mean, 4 machines of 8 GPUs, FSDP, vLLM.
#
# Run on: nothing yet. Checked: verl 0.9.1 accepts every key, and the start-up check passes (packages/pmdkit-adapters/tests/verl).
# Setup: pip install 'verl[vllm]==0.9.1' ./pmdkit-*.whl and `ray start` on every machine, then this file on the first.
#   TRAIN=dapo-math-17k.parquet TEST="[aime-2024.parquet]" bash llm/verl/qwen2.5-7b.sh
#   CHECK_ONLY=1 bash llm/verl/qwen2.5-7b.sh      # checks and explains; needs no GPU, no Ray, no data
# Put further overrides at the end: bash llm/verl/qwen2.5-7b.sh actor_rollout_ref.actor.policy_loss.pmd_tau=0.01
#
# "table" is the paper's table of hyperparameters, "text" its section 5, "code" the authors' scripts, "ours" a choice.
set -euo pipefail
PYTHON=${PYTHON:-python}

words=(
  'hydra.searchpath=[pkg://pmdkit_adapters.verl.conf]'
  +pmd=mean                                                       # or part, any
  actor_rollout_ref.actor.policy_loss.pmd_tau=0.005               # results table: 0.005, 0.01, 0.02, on rewards +-1

  data.train_files="${TRAIN:-dapo-math-17k.parquet}"              # text: DAPO-Math-17k, its column `prompt` has the template
  data.val_files="${TEST:-aime-2024.parquet}"
  data.train_batch_size=512                                       # table: prompts of a rollout batch, not responses
  data.max_prompt_length=2048                                     # table
  data.max_response_length=8192                                   # table
  data.filter_overlong_prompts=true                               # ours
  data.truncation=error                                           # ours: no silent truncation

  actor_rollout_ref.model.path="${MODEL:-Qwen/Qwen2.5-7B}"        # table
  actor_rollout_ref.model.enable_gradient_checkpointing=true      # code

  actor_rollout_ref.actor.strategy=fsdp                           # table: FSDP
  actor_rollout_ref.actor.ppo_mini_batch_size=32                  # table: prompts; x rollout.n = 512 responses of a ministep
  actor_rollout_ref.actor.ppo_epochs=1                            # table; so 512 / 32 = 16 ministeps
  actor_rollout_ref.actor.use_dynamic_bsz=true                    # code: micro-batches by tokens; no effect on the update
  actor_rollout_ref.actor.ppo_max_token_len_per_gpu=20480         # code: tokens of a forward pass; >= longest sequence
  actor_rollout_ref.actor.optim.lr=1e-6                           # table
  actor_rollout_ref.actor.optim.betas=[0.9,0.999]                 # table
  actor_rollout_ref.actor.optim.weight_decay=0.01                 # table
  actor_rollout_ref.actor.optim.clip_grad=1.0                     # table; actor.grad_clip is not read by verl 0.9.1
  actor_rollout_ref.actor.fsdp_config.param_offload=true          # code
  actor_rollout_ref.actor.fsdp_config.optimizer_offload=true      # code

  actor_rollout_ref.rollout.name=vllm                             # table
  actor_rollout_ref.rollout.n=16                                  # table: responses to each prompt
  actor_rollout_ref.rollout.temperature=1.0                       # table
  actor_rollout_ref.rollout.top_p=1.0                             # table
  actor_rollout_ref.rollout.max_model_len=10240                   # table
  actor_rollout_ref.rollout.tensor_model_parallel_size=1          # table
  actor_rollout_ref.rollout.gpu_memory_utilization=0.7            # ours
  actor_rollout_ref.rollout.val_kwargs.do_sample=true             # table: avg@32
  actor_rollout_ref.rollout.val_kwargs.n=32                       # table
  actor_rollout_ref.rollout.val_kwargs.temperature=1.0            # table
  actor_rollout_ref.rollout.val_kwargs.top_p=0.7                  # table

  trainer.nnodes=4                                                # table
  trainer.n_gpus_per_node=8                                       # table
  trainer.total_training_steps=495                                # text: rollout batches, not updates
  trainer.total_epochs=15                                         # text
  trainer.test_freq=20                                            # ours
  trainer.save_freq=20                                            # ours
  trainer.logger=[console]                                        # ours
  trainer.project_name=pmd
  trainer.experiment_name=qwen2.5-7b-pmd-mean
)

"$PYTHON" -m pmdkit_adapters.verl.check "${words[@]}" "$@"
[ -n "${CHECK_ONLY:-}" ] || exec "$PYTHON" -m verl.trainer.main_ppo "${words[@]}" "$@"
