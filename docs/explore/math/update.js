// Seconds of scoring and of an update. Port of planner/update.py: FLOPs at the rate that training reaches, or of sending
// what must be sent, if that is longer. Generation and memory: other files here.

import { wire } from "./generation.js";

/** FLOPs of one token's forward pass: 2 per weight it meets, and attention to half of its sequence. */
export function tokenFlops(sizes, shape, prompt) {
  const square = shape.square + 2 * prompt * shape.mean + prompt ** 2;
  const context = square / (2 * (prompt + shape.mean));
  return 2 * sizes.products + 4 * sizes.layers * sizes.attention * context;
}

/**
 * Seconds of all ministeps and passes of a step, rows spread evenly by tokens.
 * @returns {{compute: number, wire: number, optimizer: number, visits: number, seconds: number}}
 */
export function update(sizes, work, shape, cluster, efficiency, node) {
  const updates = work.ministeps * work.passes;
  const rows = work.prompts * work.group;
  const tokens = ((rows / work.ministeps) * (work.prompt + shape.mean)) / cluster.count; // on one, in a ministep
  const visits = Math.max(1, Math.ceil(tokens / work.token_budget));
  const rounds = work.checkpointing ? 4 : 3; // forward 1, backward 2, and forward again
  const flops = rounds * tokenFlops(sizes, shape, work.prompt) * tokens;
  const frozen = sizes.weights - sizes.trained;
  let sent = 0;
  if (cluster.count > 1 && work.fsdp2) sent = visits * 4 * (2 * sizes.weights + sizes.trained); // gather twice, scatter sums
  else if (cluster.count > 1) sent = 2 * 4 * sizes.trained; // one sum over all: the gradient goes over the wire twice
  const touched = (28 * sizes.trained + 4 * frozen) / (work.fsdp2 ? cluster.count : 1);
  const found = {
    compute: (updates * flops) / (cluster.gpu.flops * efficiency.training),
    wire: (updates * sent) / wire(cluster, node),
    optimizer: (updates * touched) / (cluster.gpu.bandwidth * efficiency.bandwidth),
    visits,
  };
  return { ...found, seconds: Math.max(found.compute, found.wire) + found.optimizer };
}

/** Seconds to score a step's responses once with the trainer, where the recipe asks for it. */
export function scoring(sizes, work, shape, cluster, efficiency) {
  if (!work.recompute) return 0;
  const rows = work.prompts * work.group;
  const flops = (tokenFlops(sizes, shape, work.prompt) * rows * (work.prompt + shape.mean)) / cluster.count;
  return flops / (cluster.gpu.flops * efficiency.training);
}
