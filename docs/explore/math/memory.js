// GiB on one accelerator, by phase and by what holds them. Port of planner/memory.py. Times: other files here.

import { engines } from "./generation.js";
import { peakTokens } from "./lengths.js";

const GIB = 2 ** 30;
const FLOAT32 = 4;

/**
 * The trainer's state is always there, and so are the weights of an engine that does not sleep.
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
  const update = {
    gradients: (FLOAT32 * sizes.trained) / shares,
    "gathered weights": whole,
    "weights as computed with": cast,
    activations: kept * Math.max(work.token_budget, work.longest) + FLOAT32 * merged,
    logits: FLOAT32 * sizes.head_tokens * sizes.vocabulary,
    "gradient of the head": FLOAT32 * head,
  };
  const cached = work.share === null ? Math.min(Math.max(wanted, work.longest), room) : room; // vLLM fills its share
  const cache = { "KV cache": cached * engine.cacheBytes };
  const bytes = {
    rollout: { ...beside, ...cache },
    update: { ...state, ...(trainers || work.sleeps ? {} : copy), ...update },
  };
  const phases = {};
  for (const [phase, parts] of Object.entries(bytes)) {
    phases[phase] = Object.fromEntries(Object.entries(parts).map(([name, size]) => [name, size / GIB]));
  }
  const totals = { rollout: sum(phases.rollout), update: sum(phases.update) };
  const fits = Math.max(totals.rollout, totals.update) <= (limit / GIB) * (1 + 1e-9) && room >= work.longest;
  return { phases, totals, limit: limit / GIB, room, fits };
}

function sum(parts) {
  return Object.values(parts).reduce((a, b) => a + b, 0);
}
