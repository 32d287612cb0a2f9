// What the batch planner holds: defaults, limits, presets, and the setting that the mathematics sees. Drawing: elsewhere.

import { bestServe, predict } from "../math/prediction.js";
import { ages, timeline } from "../math/timeline.js";
import tables from "./tables.js";

export { tables };

const paper = tables.recipes["qwen2.5-7b"].setting;

/** What stands in the address: 0 and 1 for no and yes; mean 0 is the shape's own share of the width. */
export const DEFAULTS = {
  recipe: "qwen2.5-7b", ...flags(paper), gpu: "H100", gpus: 32, tp: 1, serve: 0, shape: "direct", mean: 0, at: 0.6,
};

function flags(setting) {
  const { checkpointing, fsdp2, recompute, sleeps, ...rest } = setting;
  const numbers = { checkpointing: Number(checkpointing), fsdp2: Number(fsdp2), recompute: Number(recompute) };
  return { ...rest, ...numbers, sleeps: Number(sleeps) };
}

const recipe = (name, more) => ({ ...DEFAULTS, recipe: name, ...flags(tables.recipes[name].setting), ...more });

/** Key, words, state, what to see. */
export const PRESETS = [
  ["paper", "The paper's 7B run", recipe("qwen2.5-7b", {}),
    "Sixteen ministeps share one rollout batch: the last learns from a policy 15 updates old."],
  ["on-policy", "On-policy", recipe("qwen2.5-7b", { prompts: 32, ministeps: 1 }),
    "One update for each rollout batch: nothing is stale, and every batch waits for its longest response."],
  ["lag", "A lag of 1", recipe("qwen2.5-7b", { gpus: 64, lag: 1, serve: 24, recompute: 0 }),
    "24 GPUs write the next batch while 40 learn from the last one: the trainers never wait, and every age grows by 16."],
  ["one-gpu", "One GPU", recipe("one-gpu", { gpu: "L40S", gpus: 1 }),
    "A model of 1.5 billion weights in 48 GB: the moments of the optimizer alone take a quarter of it."],
  ["moe", "30B-A3B", recipe("qwen3-30b-a3b", { gpus: 64, tp: 4 }),
    "A mixture of experts: 3 billion weights work on a token, but all 30 have to be sent and stored."],
  ["full", "Too much for one", recipe("qwen2.5-7b", { gpus: 1, fsdp2: 0, prompts: 64, ministeps: 4, recompute: 0 }),
    "7.6 billion float32 weights with gradients and two moments are 113 GiB, before a single response is written."],
];

/** Smallest and largest value of each slider. */
export const LIMITS = {
  prompts: [1, 4096], group: [2, 64], ministeps: [1, 64], mean: [16, 31000], width: [256, 32768], gpus: [1, 512],
  lag: [0, 4], serve: [0, 504], passes: [1, 4], token_budget: [1024, 65536], max_prompt: [256, 4096],
};

/** 1, 2, 3, 4, 6, 8, 12, ...: what frameworks can divide. */
export const EVEN = Array.from({ length: 17 }, (_, k) => [2 ** k, 3 * 2 ** k]).flat().sort((a, b) => a - b);

/** Divisors, in order. */
export const divisors = (whole) => Array.from({ length: whole }, (_, k) => k + 1).filter((k) => whole % k === 0);

/** A state within the limits and consistent in itself: an address can be edited by hand. */
export function tidy(state) {
  const kept = { ...state };
  for (const [key, [min, max]] of Object.entries(LIMITS)) {
    if (key !== "mean") kept[key] = Math.min(max, Math.max(min, Math.round(state[key])));
  }
  if (!(kept.recipe in tables.recipes)) kept.recipe = DEFAULTS.recipe;
  if (!(kept.model in tables.models)) kept.model = DEFAULTS.model;
  if (!(kept.gpu in tables.gpus)) kept.gpu = DEFAULTS.gpu;
  if (!(kept.shape in tables.quantiles)) kept.shape = DEFAULTS.shape;
  for (const key of ["checkpointing", "fsdp2", "recompute", "sleeps"]) kept[key] = kept[key] ? 1 : 0;
  kept.prompt = DEFAULTS.prompt;
  kept.share = Math.min(0.95, Math.max(0.05, kept.share)); // of the recipe: vllm.memory
  kept.ministeps = Math.min(kept.ministeps, kept.prompts);
  kept.mean = state.mean > 0 ? Math.max(1, Math.min(Math.round(state.mean), Math.floor(0.95 * kept.width))) : 0;
  while (![1, 2, 4, 8].includes(kept.tp) || kept.gpus % kept.tp) kept.tp = kept.tp > 8 ? 8 : Math.floor(kept.tp) - 1 || 1;
  const most = Math.floor((kept.gpus - 1) / kept.tp) * kept.tp;
  kept.serve = Math.min(most, Math.round(kept.serve / kept.tp) * kept.tp);
  if (kept.lag) kept.recompute = 0; // the trainer's weights have moved on when a response arrives
  kept.at = Math.min(1, Math.max(0, state.at));
  return kept;
}

/** The same in the words of prediction.js. */
export function settingOf(state) {
  const { recipe: _, at: __, ...rest } = state;
  return {
    ...rest, mean: state.mean || null, checkpointing: state.checkpointing === 1, fsdp2: state.fsdp2 === 1,
    recompute: state.recompute === 1, sleeps: state.sleeps === 1,
  };
}

/** GPUs that should only generate, so that the step is shortest; the smallest division where none fits. */
export const division = (state) => bestServe(tables, settingOf(state)) ?? Math.min(state.tp, state.gpus - 1);

/** Prediction, the first steps in time, and what happens at the moment that is looked at. */
export function solve(state) {
  const setting = settingOf(state);
  const found = predict(tables, setting);
  const updates = setting.ministeps * setting.passes;
  const steps = setting.lag + 3;
  const training = found.scoring + found.update.seconds;
  const time = timeline(found.generation.seconds, training, steps, setting.lag, setting.serve > 0);
  const ends = time.update.at(-1)[1];
  const old = Array.from({ length: steps }, (_, step) => ages(step, setting.lag, updates));
  return { setting, found, time, ends, old, updates, moment: moment(state.at * ends, found, time, old) };
}

/** Who does what at that second; `age` is NaN while nothing is learned. */
function moment(second, found, time, old) {
  const inside = ([begin, end]) => second >= begin && second < end;
  const writing = time.generation.findIndex(inside);
  const learning = time.update.findIndex(inside);
  let [ministep, age] = [NaN, NaN];
  if (learning >= 0) {
    const done = second - time.update[learning][0] - found.scoring;
    const count = old[learning].length;
    if (done >= 0) ministep = Math.min(count - 1, Math.floor((done / found.update.seconds) * count));
    if (done >= 0) age = old[learning][ministep];
  }
  return { second, writing, learning, ministep, age };
}
