// Seconds of scoring and of an update. Port of planner/timing.py: products, experts, attention, what layers move, the head
// and the host, or of sending what must be sent, if that is longer. Generation and memory: other files here.

import { ring } from "./generation.js";

/** FLOPs of one token's attention in a forward pass: to half of its sequence. */
export function attentionFlops(sizes, shape, prompt) {
  const square = shape.square + 2 * prompt * shape.mean + prompt ** 2;
  const context = square / (2 * (prompt + shape.mean));
  return 4 * sizes.layers * sizes.attention * context;
}

/** Seconds of a forward pass over so many tokens on one accelerator, with its backward pass if `train`. */
export function passSeconds(sizes, work, shape, tokens, gpu, e, train) {
  const again = train && work.checkpointing ? 1 : 0;
  const frozen = sizes.trained < sizes.weights;
  const rounds = 1 + again + (train ? (frozen ? 1 : 2) : 0);
  const visited = (sizes.experts * sizes.chosen) / sizes.choices;
  const each = (tokens * sizes.chosen) / sizes.choices; // rows of one expert
  const rate = gpu.flops * gpu.reached * e.training;
  const half = (e.half * gpu.flops) / gpu.bandwidth;
  const passes = 1 + again + (train ? 2 : 0);
  const kernels = e.kernels * (sizes.experts ? 1.5 : 1) * (frozen ? 2 : 1);
  const memory = gpu.bandwidth * e.bandwidth;
  const products = (rounds * 2 * (sizes.products - visited) * tokens) / ((rate * tokens) / (tokens + half));
  const experts = (rounds * 2 * visited * tokens) / ((rate * each) / (each + half));
  const attention =
    ((1 + again + (train ? 2.5 : 0)) * attentionFlops(sizes, shape, work.prompt) * tokens) /
    (gpu.flops * (e.attention || gpu.flash));
  const moved = (e.moves * passes * sizes.kept_bytes * tokens) / memory;
  const head = ((train ? 1 : 0.4) * e.logit_bytes * tokens * sizes.vocabulary) / memory;
  const launches = sizes.layers * passes * kernels * e.launch;
  const syncs = sizes.layers * passes * (sizes.experts ? e.sync : 0);
  return Math.max(products + experts + attention + moved + head, launches) + syncs;
}

/** Forward passes of one accelerator over so many tokens. */
const visitsOf = (tokens, budget) => Math.max(1, Math.ceil(tokens / budget - 1e-9));

/** Bytes that each accelerator takes in to have all weights so often, in the precision that it computes in. */
function gathered(sizes, work, cluster, times) {
  return work.fsdp2 ? (times * sizes.width_bytes * sizes.weights * (cluster.count - 1)) / cluster.count : 0;
}

/**
 * Seconds of all ministeps and passes of a step, rows spread evenly by tokens.
 * @returns {{compute: number, wire: number, optimizer: number, visits: number, seconds: number}}
 */
export function update(sizes, work, shape, cluster, efficiency, node) {
  const updates = work.ministeps * work.passes;
  const rows = (work.prompts * work.group) / work.ministeps;
  const tokens = (rows * (work.prompt + shape.mean)) / Math.min(cluster.count, rows); // on one that has any, in a ministep
  const visits = visitsOf(tokens, work.token_budget);
  const one = passSeconds(sizes, work, shape, tokens / visits, cluster.gpu, efficiency, true);
  const others = (cluster.count - 1) / cluster.count;
  const summed = 4 * sizes.trained * others * (work.fsdp2 ? visits : 2); // float32; a share each visit, or all at the end
  const touched = (28 * sizes.trained + 4 * (sizes.weights - sizes.trained)) / (work.fsdp2 ? cluster.count : 1);
  const found = {
    compute: updates * visits * one,
    wire: (updates * (visits * gathered(sizes, work, cluster, 2) + summed)) / (ring(cluster, node) * efficiency.collective),
    optimizer: (updates * touched) / (cluster.gpu.bandwidth * efficiency.bandwidth),
    visits,
  };
  return { ...found, seconds: Math.max(found.compute, found.wire) + found.optimizer };
}

/** Seconds to score a step's responses once with the trainer, where the recipe asks for it. */
export function scoring(sizes, work, shape, cluster, efficiency, node) {
  if (!work.recompute) return 0;
  const rows = work.prompts * work.group;
  const tokens = (rows * (work.prompt + shape.mean)) / Math.min(cluster.count, rows);
  const visits = visitsOf(tokens, work.token_budget);
  const one = passSeconds(sizes, work, shape, tokens / visits, cluster.gpu, efficiency, false);
  return visits * Math.max(one, gathered(sizes, work, cluster, 1) / (ring(cluster, node) * efficiency.collective));
}
