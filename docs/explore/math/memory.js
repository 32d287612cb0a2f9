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
  const cut = work.fsdp2 && there.count > 1;
  const cached = work.share === null ? Math.min(Math.max(wanted, work.longest), room) : room; // vLLM fills its share
  const cache = { "KV cache": cached * engine.cacheBytes };
  const awake = trainers || work.sleeps ? {} : { ...copy, ...(work.share === null ? {} : cache) };
  const bytes = {
    rollout: { ...beside, ...cache },
    score: { ...state, ...awake, ...scoreParts(sizes, work, there.count, cut) },
    update: { ...state, ...awake, ...updateParts(sizes, work, there.count, cut) },
  };
  const phases = {};
  for (const [phase, parts] of Object.entries(bytes)) {
    phases[phase] = Object.fromEntries(Object.entries(parts).map(([name, size]) => [name, size / GIB]));
  }
  const totals = Object.fromEntries(Object.entries(phases).map(([phase, parts]) => [phase, sum(parts)]));
  const fits = Math.max(...Object.values(totals)) <= (limit / GIB) * (1 + 1e-9) && room >= work.longest;
  return { phases, totals, limit: limit / GIB, room, fits };
}

/** Tokens of the largest pass, and whether it is the only one of an update: no gradients are summed before it. */
function largestPass(work, count) {
  const everything = work.longest - work.width + (work.width * work.prompts * work.group) / work.ministeps / count;
  const only = everything <= work.token_budget;
  return [Math.max(work.longest, only ? everything : work.token_budget), only];
}

/** Which weights a pass holds beside the trainer's, and their bytes in the head and in a block. */
function weightsOfAPass(sizes, cut) {
  const width = sizes.width_bytes;
  const head = sizes.vocabulary * sizes.dimension;
  const ends = width * (head + sizes.lookup);
  if (cut) return ["gathered weights", ends, ends + 2 * width * sizes.block];
  if (width === FLOAT32) return ["weights as computed with", 0, 0];
  return ["weights as computed with", ends + width * head, ends + width * sizes.block];
}

/** The head's rows of logits, in float32 and as the products take them. */
function logits(sizes) {
  const narrow = sizes.width_bytes < FLOAT32 ? sizes.width_bytes : 0;
  return (FLOAT32 + narrow) * sizes.head_tokens * sizes.vocabulary;
}

/** A forward pass without gradient, in the head or in a block, whichever holds more. */
function scoreParts(sizes, work, count, cut) {
  const [tokens] = largestPass(work, count);
  const [name, inHead, inBlock] = weightsOfAPass(sizes, cut);
  const block = (0.75 * sizes.kept_bytes * tokens + FLOAT32 * sizes.merged) / sizes.layers;
  const states = sizes.width_bytes * sizes.dimension * tokens;
  return fuller({ [name]: inHead, activations: states, logits: logits(sizes) }, { [name]: inBlock, activations: block });
}

/** An update, in the head or in the backward pass of a block, whichever holds more. Models here are in bfloat16. */
function updateParts(sizes, work, count, cut) {
  const [tokens, only] = largestPass(work, count);
  const width = sizes.width_bytes;
  let [name, inHead, inBlock] = weightsOfAPass(sizes, cut);
  const block = (sizes.kept_bytes * tokens) / sizes.layers;
  const head = sizes.vocabulary * sizes.dimension;
  const kept = work.checkpointing ? width * sizes.dimension * tokens : block;
  if (!work.checkpointing && !cut) {
    inHead += width * sizes.layers * sizes.block;
    inBlock += width * (sizes.layers - 1) * sizes.block;
  }
  const inputs = kept * sizes.layers + (FLOAT32 * sizes.merged) / (work.checkpointing ? sizes.layers : 1);
  const gradients = only ? 0 : (FLOAT32 * sizes.trained) / (cut ? count : 1);
  const moment = fuller(
    {
      [name]: inHead,
      activations: inputs + 5 * width * sizes.dimension * tokens,
      logits: logits(sizes),
      "gradient of the head": FLOAT32 * head * (work.width > sizes.head_tokens ? 2 : 1), // a long response needs another
    },
    {
      [name]: inBlock + (width + FLOAT32) * sizes.block,
      activations: inputs + (work.checkpointing ? block : 0) + block / 2,
      "gradient of the head": (cut ? width : FLOAT32) * head,
    },
  );
  return { gradients, ...moment };
}

function fuller(one, other) {
  return sum(other) > sum(one) ? other : one;
}

function sum(parts) {
  return Object.values(parts).reduce((a, b) => a + b, 0);
}
