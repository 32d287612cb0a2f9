// What a step costs, from a setting and the planner's tables: the port of planner/predict.py and division.py.
// A setting is what the page holds; names as in the options of `pmdkit plan`. Batch arithmetic and words: batch.js.

import { Engine, engines, generation, wire } from "./generation.js";
import { lengths } from "./lengths.js";
import { memory } from "./memory.js";
import { staleness } from "./timeline.js";
import { scoring, update } from "./update.js";

/**
 * @typedef {Object} Setting
 * @property {string} model, gpu, shape keys of the tables
 * @property {number} gpus, tp, serve accelerators in all, of one engine, that only generate
 * @property {number} prompts, group, ministeps, passes, lag
 * @property {number} width, max_prompt longest response and prompt, tokens
 * @property {number|null} mean, prompt tokens on average; null for the shape's share of the width
 * @property {number} token_budget tokens of one forward pass of the trainer
 * @property {boolean} checkpointing, fsdp2, recompute
 * @property {number|null} share of memory that vLLM fills; null for an engine that takes what the trainer leaves
 * @property {boolean} sleeps the engine gives its memory back while the trainer scores and updates
 */

const kept = new Map(); // the shape of the lengths changes seldom, and takes longest

function shapeOf(tables, setting) {
  const key = `${setting.shape} ${setting.width} ${setting.mean}`;
  if (!kept.has(key)) {
    if (kept.size > 64) kept.clear();
    kept.set(key, lengths(tables.quantiles[setting.shape], setting.width, setting.mean));
  }
  return kept.get(key);
}

/** The prediction for a setting: memory of one accelerator, seconds of the whole cluster, and the on-policy twin. */
export function predict(tables, setting) {
  const work = workOf(setting);
  const found = once(tables, work);
  const own = once(tables, { ...work, prompts: work.prompts / work.ministeps, ministeps: 1, lag: 0 });
  return { ...found, speedup: own.perToken.overall / found.perToken.overall, onPolicy: own };
}

function workOf(setting) {
  return {
    ...setting,
    prompt: Math.min(setting.prompt, setting.max_prompt),
    longest: setting.max_prompt + setting.width,
    slots: null,
  };
}

/** The memory alone, for who asks about nothing else. */
export function memoryOf(tables, setting) {
  const work = workOf(setting);
  return parts(tables, work, shapeOf(tables, work)).held;
}

function parts(tables, work, shape) {
  const sizes = tables.models[work.model];
  const whole = { gpu: tables.gpus[work.gpu], count: work.gpus, tensor: work.tp };
  const generators = work.serve ? { ...whole, count: work.serve } : whole;
  const trainers = { ...whole, count: whole.count - work.serve };
  const engine = new Engine(sizes, generators, tables.efficiency);
  const held = memory(engine, work, shape, work.serve ? trainers : null);
  return { sizes, whole, generators, trainers, engine, held };
}

function once(tables, work) {
  const { efficiency, node } = tables;
  const shape = shapeOf(tables, work);
  const { sizes, whole, generators, trainers, engine, held } = parts(tables, work, shape);
  const room = Math.max(held.room, work.longest); // a plan that does not fit is timed as if one row did
  const rows = work.prompts * work.group;
  const written = generation(engine, shape, rows, work.prompt, room, work.slots, node);
  if (work.serve) {
    written.sync = (sizes.width_bytes * sizes.weights) / wire(whole, node); // trainers and engines may be far apart
    written.seconds = written.decode + written.prefill + written.sync;
  }
  const learned = update(sizes, work, shape, trainers, efficiency, node);
  const scored = scoring(sizes, work, shape, trainers, efficiency, node);
  const overlaps = work.serve > 0 && work.lag > 0;
  const training = scored + learned.seconds;
  const tokens = rows * shape.mean;
  const told = (seconds) => (1e3 * seconds) / tokens;
  const both = [told(written.seconds), told(learned.seconds)];
  return {
    memory: held,
    generation: written,
    update: learned,
    scoring: scored,
    overlaps,
    seconds: overlaps ? Math.max(written.seconds, training) : written.seconds + training,
    tokens,
    meanLength: shape.mean,
    staleness: staleness(work.lag, work.ministeps, work.passes),
    engines: engines(generators),
    generators: generators.count,
    trainers: trainers.count,
    perToken: {
      overall: overlaps ? Math.max(...both) : both[0] + both[1],
      generation: both[0],
      scoring: told(scored),
      update: both[1],
    },
  };
}

/** How many accelerators should only generate, so that the step is shortest of those that fit; null where none fits. */
export function bestServe(tables, setting) {
  const unit = setting.gpus > 2 * tables.node && tables.node % setting.tp === 0 ? tables.node : setting.tp;
  let best = null;
  for (let serve = unit; serve < setting.gpus; serve += unit) {
    const found = once(tables, workOf({ ...setting, serve }));
    if (!found.memory.fits) continue;
    const rank = [found.seconds, found.generation.seconds + found.update.seconds];
    if (best === null || rank[0] < best.rank[0] || (rank[0] === best.rank[0] && rank[1] < best.rank[1])) {
      best = { serve, rank };
    }
  }
  return best === null ? null : best.serve;
}
