// What "Train one" holds: defaults, limits, the three things to break, and sentences. Drawing: picture.js.

import { TITLES } from "../losses/state.js";
import { rightAnswer, tokensOf } from "../math/task.js";

export const OBJECTIVES = [
  "pmd-mean", "pmd-part", "grpo", "rloo", "dr-grpo", "dapo", "gspo", "cispo", "chi2-po", "own",
];
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

/** Key, words, kind, and what to know of it; the first two are on the home page too. */
export const SLIDERS = [
  ["tau", "τ of the objective (reward units)", { log: true },
    "With two ministeps τ changes next to nothing here: it says where a push ends, and two updates do not get there."],
  ["ministeps", "ministeps, updates per batch", { log: true, whole: true }],
  ["lr", "learning rate of AdamW", { log: true }],
  ["group", "answers drawn per sum, G", { log: true, whole: true }],
  ["temperature", "temperature of the policy, as drawn and as trained", { log: true }],
  ["top_p", "top_p of the draws", {}, "Below 1 the least likely answers are never drawn."],
  ["gain", "how sure the first policy is (gain of its head)", { log: true }],
  ["seed", "seed", { whole: true }],
];

/** Three things to break: key, words, what is changed, what to see, and the button that repairs it. */
export const BREAKS = [
  ["one", "PMD-part, 16 ministeps", { objective: "pmd-part", ministeps: 16 },
    "Nearly every sum gets the same few answers, and the pass rate stays near chance: at τ = 0.05 PMD-part's push away "
    + "from the old policy is stronger than its pull, and sixteen updates add up.",
    ["Repair it: PMD-mean", { objective: "pmd-mean" }]],
  ["sure", "a first policy that is sure", { gain: 3 },
    "It learns fast what it happens to draw. Then about half of the cells stay square: what is not drawn is not learned.",
    ["Repair it: temperature 3", { temperature: 3 }]],
  ["stale", "RLOO, 64 ministeps", { objective: "rloo", ministeps: 64 },
    "Most runs get stuck halfway, and wander: nothing pulls 64 updates on one batch back to the policy that drew it.",
    ["Repair it: two ministeps", { ministeps: 2 }]],
];

/** A state within the limits: an address can be edited by hand. */
export function tidy(state) {
  const kept = { ...state };
  for (const [key, [min, max]] of Object.entries(LIMITS)) kept[key] = Math.min(max, Math.max(min, state[key]));
  for (const key of ["group", "ministeps", "seed", "cell"]) kept[key] = Math.round(kept[key]);
  if (!OBJECTIVES.includes(state.objective)) kept.objective = DEFAULTS.objective;
  return kept;
}

export const percent = (p) => `${(100 * p).toFixed(1)} %`;

const ENDS = {
  grpo: "its push falls silent where the clip begins, and nothing pulls back",
  rloo: "its push never ends",
  cispo: "its clip bounds the weight of a push and not its way",
  "chi2-po": "each answer has a target of its own",
  own: "your formula decides where a push ends",
};

/** What happened in a step, beside what theory says of it. */
export function summary({ step, rate, was }, { objective }) {
  if (!was) return `The first policy is right with ${percent(rate)}. Nothing has been drawn yet.`;
  const happened = `Step ${step} took the pass rate from ${percent(was.rate)} to ${percent(rate)}.`;
  const name = titleOf(objective).replace(/^y/, "Y");
  if (was.exact === null) return `${happened} ${name} has no exact step here: ${ENDS[objective] ?? ENDS.grpo}.`;
  return `${happened} An exact step of ${name} would have reached ${percent(was.exact)}.`;
}

/** The heading of the picture of one sum. */
export function about(cell, drawn) {
  const [a, b] = tokensOf(cell);
  const right = drawn?.filter(({ reward }) => reward === 1).length;
  const draws = drawn ? `${right} of ${drawn.length} draws are right` : "the last step did not ask it";
  return `${a} + ${b} = ${rightAnswer(cell)}, modulo 10: ${draws}. Outline before the step, bar after, dots draws, `
    + "dashed line the target of a draw.";
}
