// GiB on one accelerator, by phase and by what holds them. Port of planner/memory.py. Times: other files here.

import { engines } from "./generation.js";
import { peakTokens } from "./lengths.js";

const GIB = 2 ** 30;
const FLOAT32 = 4;

/**
 * The trainer's state is always there, and so is all that an engine has which does not sleep.
 * @param {Engine} engine
 * @param {Object} work what the recipe asks for
 * @param {Object} shape response lengths
 * @param {Object|null} trainers accelerators that only train; null where all do both in turns
 * @returns {{phases: Object<string, Object<string, number>>, totals: Object<string, number>, limit: number,
 *   room: number, fits: boolean}} GiB; `room` is in tokens of keys and values
 */
export function memory(engine, work, shape, trainers) {
  const { sizes, cluster, efficiency } = engine;
  const there = trainers ?? cluster;
  const shares = work.fsdp2 ? there.count : 1;
  const state = {
    weights: (FLOAT32 * sizes.weights) / shares,
    optimizer: (2 * FLOAT32 * sizes.trained) / shares,
  };
  const copy = { "engine weights": engine.weightBytes };
  const limit = efficiency.memory * cluster.gpu.gib * GIB;
  const beside = trainers ? copy : { ...state, ...copy };
  let left = Math.max(0, limit - sum(beside));
  if (work.share !== null) left = Math.max(0, work.share * cluster.gpu.gib * GIB - engine.weightBytes);
  const all = work.prompts * work.group;
  const rows = all / Math.min(engines(cluster), Math.max(1, all));
  const wanted = peakTokens(shape, rows, work.prompt);
  const room = left / engine.cacheBytes;
  const kept = work.checkpointing ? sizes.kept_bytes_checkpointed : sizes.kept_bytes;
  const merged = Math.floor(sizes.merged / (work.checkpointing ? sizes.layers : 1));
  const head = sizes.vocabulary * sizes.dimension;
  const cut = work.fsdp2 && there.count > 1;
  const width = sizes.width_bytes;
  const summed = width + (width < FLOAT32 ? FLOAT32 : 0); // a gradient, and its float32 copy on the way to the others
  const ends = head + sizes.lookup; // they stay whole from the first layer to the last
  const whole = cut ? (2 * width + summed) * sizes.block + (width + summed) * ends : 0; // one block computes, one waits
  let cast = 0; // without shares: the weights in bfloat16, as long as a backward pass needs them
  if (!cut && width < FLOAT32) cast = width * (work.checkpointing ? 2 * sizes.block + ends : sizes.weights);
  const tokens = Math.max(work.token_budget, work.longest);
  const logits = FLOAT32 * sizes.head_tokens * sizes.vocabulary;
  const pass = width * (2 * sizes.block + ends); // what a forward pass holds of the weights
  const score = {
    "gathered weights": cut ? pass : 0,
    "weights as computed with": !cut && width < FLOAT32 ? pass : 0,
    activations: (sizes.kept_bytes / sizes.layers) * tokens + (FLOAT32 * sizes.merged) / sizes.layers,
    logits,
  };
  const update = {
    gradients: (FLOAT32 * sizes.trained) / shares,
    "gathered weights": whole,
    "weights as computed with": cast,
    activations: kept * tokens + FLOAT32 * merged,
    logits,
    "gradient of the head": FLOAT32 * head * (work.width > sizes.head_tokens ? 2 : 1), // a long response needs another
  };
  const cached = work.share === null ? Math.min(Math.max(wanted, work.longest), room) : room; // vLLM fills its share
  const cache = { "KV cache": cached * engine.cacheBytes };
  const awake = trainers || work.sleeps ? {} : { ...copy, ...(work.share === null ? {} : cache) };
  const bytes = {
    rollout: { ...beside, ...cache },
    score: { ...state, ...awake, ...score },
    update: { ...state, ...awake, ...update },
  };
  const phases = {};
  for (const [phase, parts] of Object.entries(bytes)) {
    phases[phase] = Object.fromEntries(Object.entries(parts).map(([name, size]) => [name, size / GIB]));
  }
  const totals = Object.fromEntries(Object.entries(phases).map(([phase, parts]) => [phase, sum(parts)]));
  const fits = Math.max(...Object.values(totals)) <= (limit / GIB) * (1 + 1e-9) && room >= work.longest;
  return { phases, totals, limit: limit / GIB, room, fits };
}

function sum(parts) {
  return Object.values(parts).reduce((a, b) => a + b, 0);
}
