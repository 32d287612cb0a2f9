// What the loss landscape holds: defaults, presets, and the row that each objective sees. Drawing: picture.js.

import { advantage, exists } from "../math/advantages.js";
import { coefficient, flat, loss, minimum } from "../math/objectives.js";

const ALL = "pmd-mean pmd-part rloo grpo dr-grpo dapo gspo cispo chi2-po rebel tb dro";

/** What stands in the address. Advantage and tau in reward units, log-ratios in nats, lengths in tokens. */
export const DEFAULTS = {
  on: "pmd-mean rloo grpo cispo chi2-po",
  mode: "same", // "same": one advantage for all; "group": each objective's own, from a group
  advantage: 0.5,
  tau: 0.25,
  s: 1,
  range: 3,
  size: 16,
  right: 1,
  own: "wrong",
  rewards: "01",
  length: 1,
  grpo_low: 0.2,
  grpo_high: 0.2,
  dapo_high: 0.28,
  gspo_low: 3e-4,
  gspo_high: 4e-4,
  cispo_high: 4,
  kl_share: 0.5,
  dro: "group", // what DRO subtracts: the mean of the others, or "number", which is `value`
  value: 0.5,
  anchor: 0,
};

/** Settings that tell a story: key, words, changes to the defaults, what to see. */
export const PRESETS = [
  ["first-step", "Same first step", { on: ALL, s: 0, range: 0.3 },
    "At log-ratio 0 all twelve push alike: the policy gradient."],
  ["stop", "Stop or fall silent", { on: "pmd-mean grpo", s: 2.5 },
    "PMD-mean's push turns round at advantage / τ and pulls back; GRPO's is gone after log 1.2 and nothing pulls back."],
  ["wrong", "Push a wrong one down", { on: "pmd-mean rloo grpo cispo", advantage: -0.5, s: -1.5 },
    "RLOO pushes a wrong response down for ever; PMD-mean stops; the ratio itself fades GRPO and CISPO."],
  ["rare", "One right of 16", { on: "pmd-mean pmd-part grpo rloo", mode: "group", tau: 0.1, s: -1, range: 12 },
    "A wrong response of a group with one success: PMD-part pushes it as if it had missed the whole reward."],
  ["length", "GSPO wants length", { on: "gspo grpo pmd-mean", length: 1000, s: 0.3, range: 1 },
    "Over 1,000 tokens GSPO's narrow band is 0.4 nats of the response; GRPO's wide one, per token, is never reached."],
];

const OWN_CLIP = {
  grpo: (state) => [state.grpo_low, state.grpo_high],
  "dr-grpo": (state) => [state.grpo_low, state.grpo_high],
  dapo: (state) => [state.grpo_low, state.dapo_high],
  gspo: (state) => [state.gspo_low, state.gspo_high],
  cispo: (state) => [1, state.cispo_high], // the lower side is open, as in its source
};

/** The group that "group" speaks of. */
export function groupOf(state) {
  return {
    size: state.size,
    right: Math.min(state.right, state.size),
    own: state.own === "right",
    rewards: state.rewards === "01" ? [0, 1] : [-1, 1],
  };
}

/** Whether the group holds a response of the kind that is looked at. */
export const possible = (state) => state.mode === "same" || exists(groupOf(state));

/** What one objective sees of the response. */
export function rowOf(name, state) {
  const [clip_low, clip_high] = OWN_CLIP[name]?.(state) ?? [0, 0];
  const { tau, length, size: group, anchor, kl_share } = state;
  const value = state.dro === "number" ? state.value : "group";
  const row = { tau, length, group, anchor, clip_low, clip_high, kl_share, value };
  row.advantage = state.mode === "same" ? state.advantage : advantage(name, groupOf(state), row);
  return row;
}

/**
 * Everything that is shown of one objective.
 * @returns {{row: Object, raw: Function, loss: Function, push: Function, rest: number|null,
 *   silent: [number, number]|null}} functions of the log-ratio: the loss, the same less its value at 0, and minus the
 *   coefficient; where the push ends for good, and where it is 0
 */
export function view(name, state) {
  const row = rowOf(name, state);
  const zero = loss(name, 0, row);
  return {
    row,
    raw: (s) => loss(name, s, row),
    loss: (s) => loss(name, s, row) - zero,
    push: (s) => 0 - coefficient(name, s, row),
    rest: minimum(name, row),
    silent: flat(name, row),
  };
}

/** The names that are on, in the order of the package. */
export function shown(state, names) {
  const on = new Set(state.on.split(" "));
  return names.filter((name) => on.has(name));
}

/** Names for people. */
export const TITLES = {
  "pmd-mean": "PMD-mean", "pmd-part": "PMD-part", rloo: "RLOO", grpo: "GRPO", "dr-grpo": "Dr. GRPO", dapo: "DAPO",
  gspo: "GSPO", cispo: "CISPO", "chi2-po": "chi2-PO", rebel: "REBEL", tb: "TB", dro: "DRO",
};

/** Smallest and largest value of each slider. */
export const LIMITS = {
  advantage: [-3, 3], tau: [0.005, 5], range: [0.05, 50], size: [2, 64], right: [0, 64], length: [1, 4096],
  grpo_low: [0, 1], grpo_high: [0, 4], dapo_high: [0, 4], gspo_low: [1e-4, 1], gspo_high: [1e-4, 1], cispo_high: [0, 9],
  kl_share: [0, 1], value: [-1, 1], anchor: [-5, 5],
};

const CHOICES = { mode: ["same", "group"], own: ["right", "wrong"], rewards: ["01", "pm"], dro: ["group", "number"] };

/** A state within the limits: an address can be edited by hand. */
export function tidy(state) {
  const kept = { ...state, on: shown(state, Object.keys(TITLES)).join(" ") };
  for (const [key, [min, max]] of Object.entries(LIMITS)) kept[key] = Math.min(max, Math.max(min, state[key]));
  for (const key of ["size", "right", "length"]) kept[key] = Math.round(kept[key]);
  for (const [key, known] of Object.entries(CHOICES)) if (!known.includes(state[key])) kept[key] = known[0];
  kept.right = Math.min(kept.right, kept.size);
  kept.s = Math.min(kept.range, Math.max(-kept.range, state.s));
  return kept;
}
