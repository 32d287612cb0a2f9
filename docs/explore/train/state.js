// What "Train one" holds: defaults, limits, the three things to break, and sentences. Drawing: picture.js.

import { TITLES } from "../losses/state.js";

export const OBJECTIVES = ["pmd-mean", "pmd-part", "grpo", "rloo", "dr-grpo", "dapo", "gspo", "cispo", "chi2-po", "own"];
export const titleOf = (name) => TITLES[name] ?? "your own loss";

/** What stands in the address: the recipe modular-sum. tau in reward units, gain of the head's first weights. */
export const DEFAULTS = {
  objective: "pmd-mean", formula: "-A*min(exp(s), 1.2)", tau: 0.05, group: 16, ministeps: 2, lr: 1e-3,
  temperature: 1, top_p: 1, gain: 0.1, seed: 1, cell: 73,
};

/** Smallest and largest value of each slider. */
export const LIMITS = {
  tau: [0.005, 2], group: [2, 64], ministeps: [1, 64], lr: [1e-4, 0.03], temperature: [0.3, 3], top_p: [0.1, 1],
  gain: [0.1, 3], seed: [1, 9999], cell: [0, 99],
};

/** A state within the limits: an address can be edited by hand. */
export function tidy(state) {
  const kept = { ...state };
  for (const [key, [min, max]] of Object.entries(LIMITS)) kept[key] = Math.min(max, Math.max(min, state[key]));
  for (const key of ["group", "ministeps", "seed", "cell"]) kept[key] = Math.round(kept[key]);
  if (!OBJECTIVES.includes(state.objective)) kept.objective = DEFAULTS.objective;
  return kept;
}
