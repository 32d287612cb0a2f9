// The batch arithmetic of a step in whole numbers, and the same in the keys of TRL, verl and OpenRLHF. Port of
// planner/batch.py, export_trl.py and export_verl.py; what OpenRLHF's keys count is read from its release 0.11.2.
// Learning rates, objectives and paths are not here: `pmdkit plan --as` has them.

/**
 * Whole numbers of a step.
 * @param {Setting} setting see prediction.js
 * @param {number} processes accelerators that train
 * @returns {{prompts: number, responses: number, mini: number, together: number, rows: number, micro: number,
 *   accumulate: number, error: string}} `error` says what does not divide, or is ""
 */
export function arithmetic(setting, processes) {
  const { prompts, group, ministeps } = setting;
  const mini = prompts / ministeps;
  const together = mini * group;
  const rows = together / processes;
  const most = Math.max(1, Math.floor(setting.token_budget / (setting.max_prompt + setting.width)));
  let error = "";
  if (prompts % ministeps) error = `${prompts} prompts are not divided by ${ministeps} ministeps`;
  else if (together % processes) error = `a ministep has ${together} responses, which ${processes} GPUs do not divide`;
  let micro = 1; // rows are padded there, so each may be as long as the longest
  if (!error) for (let size = 1; size <= Math.min(rows, most); size += 1) if (rows % size === 0) micro = size;
  return { prompts, responses: prompts * group, mini, together, rows, micro, accumulate: rows / micro, error };
}

/** Overrides and flags by key, in the order to read them; null where the framework cannot do the setting. */
export function trl(setting, found) {
  const batch = arithmetic(setting, found.trainers);
  if (batch.error) return null;
  return {
    per_device_train_batch_size: batch.micro,
    gradient_accumulation_steps: batch.accumulate,
    steps_per_generation: batch.accumulate * setting.ministeps,
    num_generations: setting.group,
    num_iterations: setting.passes,
    max_completion_length: setting.width,
    vllm_mode: setting.serve ? "server" : "colocate",
    vllm_tensor_parallel_size: setting.tp,
  };
}

const ROLLOUT = "actor_rollout_ref.rollout";
const ACTOR = "actor_rollout_ref.actor";

/** verl's main_ppo generates and trains in turns on all accelerators: servers apart and a lag are not carried over. */
export function verl(setting, tables, together) {
  const batch = arithmetic(setting, setting.gpus);
  const perNode = Math.min(tables.node, setting.gpus);
  const nodes = Math.ceil(setting.gpus / tables.node);
  if (batch.error || nodes * perNode !== setting.gpus) return null;
  return {
    "data.train_batch_size": setting.prompts,
    "data.max_prompt_length": setting.max_prompt,
    "data.max_response_length": setting.width,
    [`${ROLLOUT}.n`]: setting.group,
    [`${ROLLOUT}.tensor_model_parallel_size`]: setting.tp,
    [`${ROLLOUT}.gpu_memory_utilization`]: utilization(together, tables.gpus[setting.gpu].gib),
    [`${ACTOR}.ppo_mini_batch_size`]: batch.mini,
    [`${ACTOR}.ppo_epochs`]: setting.passes,
    [`${ACTOR}.use_dynamic_bsz`]: true,
    [`${ACTOR}.ppo_max_token_len_per_gpu`]: Math.max(setting.token_budget, setting.max_prompt + setting.width),
    "trainer.nnodes": nodes,
    "trainer.n_gpus_per_node": perNode,
  };
}

/**
 * OpenRLHF 0.11: `rollout.batch_size` counts prompts, `train.batch_size` responses.
 * Its rollouts may run ahead by `train.async_queue_size` batches, so the lag is a bound there, not exact.
 */
export function openrlhf(setting, found, tables, together) {
  const batch = arithmetic(setting, found.trainers);
  const perNode = Math.min(tables.node, found.trainers);
  const nodes = Math.ceil(found.trainers / tables.node);
  if (batch.error || nodes * perNode !== found.trainers) return null;
  const keys = {
    "rollout.batch_size": setting.prompts,
    "rollout.n_samples_per_prompt": setting.group,
    "train.batch_size": batch.together,
    "train.micro_batch_size": batch.micro,
    "train.max_epochs": setting.passes,
    "rollout.max_new_tokens": setting.width,
    "data.max_len": setting.max_prompt + setting.width,
    "actor.num_nodes": nodes,
    "actor.num_gpus_per_node": perNode,
    "vllm.num_engines": found.engines,
    "vllm.tensor_parallel_size": setting.tp,
  };
  if (!setting.serve) keys["vllm.gpu_memory_utilization"] = utilization(together, tables.gpus[setting.gpu].gib);
  if (setting.lag && setting.serve) return { ...keys, "train.async_enable": true, "train.async_queue_size": setting.lag };
  return setting.serve ? keys : { ...keys, "train.colocate_all": true };
}

/** The share of memory for weights and cache that the plan leaves the engine, in twentieths, as planner/advice.py. */
export function utilization(memory, gib) {
  const parts = memory.phases.rollout;
  const state = (parts.weights ?? 0) + (parts.optimizer ?? 0);
  const share = Math.max(0.01, Math.trunc((100 * (memory.limit - state)) / gib) / 100);
  return Math.max(0.05, Math.trunc(20 * share) / 20);
}

/** The call of `pmdkit plan` that gives the numbers of the page. */
export function command(setting, recipe) {
  const words = [`pmdkit plan ${recipe.name} --gpus ${setting.gpus}x${setting.gpu} --tp ${setting.tp}`];
  if (setting.serve) words.push(`--serve ${setting.serve}`);
  words.push(`--prompts ${setting.prompts} --group ${setting.group} --ministeps ${setting.ministeps}`);
  if (setting.shape !== "direct") words.push(`--lengths ${setting.shape}`);
  if (setting.mean !== null) words.push(`--mean-length ${setting.mean}`);
  const sets = {
    "model.path": setting.model,
    "model.checkpointing": setting.checkpointing,
    "parallel.strategy": setting.fsdp2 ? "fsdp2" : "ddp",
    "rollout.width": setting.width,
    "rollout.max_prompt": setting.max_prompt,
    "rollout.old": setting.recompute ? "recompute" : "rollout",
    "rollout.lag": setting.lag,
    "schedule.passes": setting.passes,
    "update.token_budget": setting.token_budget,
  };
  const changed = Object.entries(sets).filter(([key, value]) => String(recipe.sets[key]) !== String(value));
  return [...words, ...changed.map(([key, value]) => `--set ${key}=${value}`)].join(" ");
}
