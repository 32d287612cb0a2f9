// Seconds to write the responses of a step. Port of planner/generation.py: decode steps that read all weights, until the
// longest response ends. Clusters are { gpu, count, tensor }; memory and updates: other files here.

import { peakTokens } from "./lengths.js";

/** Engines that generate side by side. */
export const engines = (cluster) => Math.floor(cluster.count / cluster.tensor);

/** Bytes/s between any two accelerators: the network, where there is more than one machine. */
export const wire = (cluster, node) => (cluster.count <= node ? cluster.gpu.link : cluster.gpu.network);

/** Bytes/s at which each takes in what all hold: a machine gets it once, over the networks of all its accelerators. */
export const ring = (cluster, node) =>
  cluster.count <= node ? cluster.gpu.link : Math.min(cluster.gpu.link, node * cluster.gpu.network);

/** What decoding costs one engine: sizes of the model, accelerators, what is reached of their data sheet. */
export class Engine {
  constructor(sizes, cluster, efficiency) {
    Object.assign(this, { sizes, cluster, efficiency });
    this.bandwidth = cluster.gpu.bandwidth * efficiency.bandwidth;
    /** Weights that one accelerator holds, bytes. */
    this.weightBytes = (sizes.width_bytes * sizes.weights) / cluster.tensor;
    /** Keys and values of one token on one accelerator, bytes. */
    this.cacheBytes = sizes.kv_bytes / Math.min(cluster.tensor, sizes.kv_heads);
  }

  /** Seconds of one decode step of so many rows whose contexts hold so many tokens together. */
  decode(rows, tokens) {
    return this.weightsSeconds(rows) + (tokens * this.cacheBytes) / this.bandwidth;
  }

  /** The slower of reading weights and multiplying, and the host; of the experts those are read that a row visits. */
  weightsSeconds(rows) {
    const { sizes: s, cluster: c, efficiency: e } = this;
    const visited = s.experts ? 1 - (1 - s.chosen / s.choices) ** rows : 0;
    const read = (s.width_bytes * (s.weights - s.experts - s.lookup + visited * s.experts)) / c.tensor;
    const multiply = (2 * s.products * rows) / (c.tensor * c.gpu.flops * e.products);
    return Math.max(read / this.bandwidth, multiply) + this.sums(rows) + e.step_seconds + e.row_seconds * rows;
  }

  /** Seconds that a tensor-parallel engine spends on two sums for each layer. */
  sums(rows) {
    const { sizes: s, cluster: c } = this;
    if (c.tensor === 1) return 0;
    return 2 * s.layers * (this.efficiency.reduce_seconds + (2 * rows * s.dimension * s.width_bytes) / c.gpu.link);
  }

  /** Seconds to read so many tokens of prompts. */
  prefill(tokens) {
    const { cluster: c } = this;
    return (2 * this.sizes.products * tokens) / (c.tensor * c.gpu.flops * this.efficiency.products);
  }
}

/**
 * Expected seconds for `rows` responses over all engines.
 * @returns {{decode: number, prefill: number, sync: number, steps: number, queue: number, seconds: number}}
 */
export function generation(engine, shape, rows, prompt, room, slots, node) {
  const side = Math.min(engines(engine.cluster), Math.max(1, rows));
  const mine = rows / side;
  const [decode, steps, queue] = decoding(engine, shape, mine, side, prompt, room, slots);
  const { sizes, cluster } = engine;
  const sync = cluster.count > 1 ? (sizes.width_bytes * sizes.weights) / ring(cluster, node) : 0;
  const prefill = engine.prefill(mine * prompt);
  return { decode, prefill, sync, steps, queue, seconds: decode + prefill + sync };
}

/** Seconds, decode steps, and the share of rows that wait, for the engine that holds the longest response. */
function decoding(engine, shape, rows, side, prompt, room, most) {
  if (peakTokens(shape, rows, prompt) <= room && (most === null || rows <= most)) {
    return [...drain(engine, shape.alive, 1, prompt, rows, side), 0];
  }
  // Rows wait. While they do, the batch is as large as may be, and its rows are of every age.
  const age = shape.square / (2 * shape.mean);
  const slots = Math.min(rows, Math.max(1, room / (prompt + age)), most || rows);
  const fullSteps = Math.max(0, (rows * shape.mean) / slots - age); // age is also what a row still has before it
  const full = engine.decode(slots, slots * (prompt + age));
  const residual = new Float64Array(shape.width); // P(more than t tokens to come), rows of every age
  for (let t = shape.width - 1, sum = 0; t >= 0; t -= 1) residual[t] = (sum += shape.alive[t]);
  const [seconds, steps] = drain(engine, residual, shape.mean, prompt + age / 2, slots, side);
  return [fullSteps * full + seconds, fullSteps + steps, 1 - slots / rows];
}

/** Seconds and decode steps from a full batch to an empty one; alive[t] / over are left at token t. */
function drain(engine, alive, over, context, rows, side) {
  let [seconds, steps] = [0, 0];
  for (let t = 0; t < alive.length; t += 1) {
    const left = alive[t] / over;
    const some = 1 - Math.min(1, Math.max(0, 1 - left)) ** (rows * side); // P(the longest of all is being written)
    if (some <= 1e-12) continue;
    const batch = Math.max(rows * left, some) / some; // rows beside it; it is one itself
    seconds += some * engine.decode(batch, batch * (context + t));
    steps += some;
  }
  return [seconds, steps];
}
