// What an objective makes of a recorded group of responses: advantage, coefficient, weight and push of each. No DOM here.
// packages/pmdkit-lab/tests/replay/test_web.py compares every number with pmdkit_lab.replay.gradient on recorded runs.
//
// A group is one of `pmdkit replay --web`: columns `reward`, `mass`, `length`, at the policies `seen` and `after` the
// log-ratios of responses, and `seen_tokens`, `after_tokens` those of tokens where they were recorded. A row of mass 0
// has no reward. At the policy "old" every log-ratio is 0. Options are those of pmdkit.objectives, with the name.

import { logBounds } from "./objectives.js";

/** Policies at which a push is computed. */
export const POINTS = ["old", "seen", "after"];

const BY_TOKEN = new Set(["grpo", "dr-grpo", "dapo", "cispo"]);
const WHOLE_GROUPS = new Set(["rebel", "tb"]);
const OWN_MEAN = new Set(["dr-grpo", "grpo", "dapo", "gspo", "cispo"]);

export const RECORDED_NAMES = [
  "pmd-mean", "pmd-part", "rloo", "grpo", "dr-grpo", "dapo", "gspo", "cispo", "chi2-po", "rebel", "tb", "dro",
];

/** Float32 numbers in base64, little-endian, as a list. */
export function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Array.from({ length: bytes.length / 4 }, (_, i) => view.getFloat32(4 * i, true));
}

/** Rows with a reward; a group of draws with a single one has no peer, and nothing is learned from it. */
function presentRows(group, run) {
  const rows = group.mass.map((mass, i) => (mass > 0 && group.reward[i] !== null ? i : -1)).filter((i) => i >= 0);
  return rows.length >= (run.sampled ? 2 : 1) ? rows : [];
}

const sum = (values) => values.reduce((total, value) => total + value, 0);

function meanReward(group, rows) {
  return sum(rows.map((i) => group.mass[i] * group.reward[i])) / sum(rows.map((i) => group.mass[i]));
}

/** Mean reward of the others; of the whole group where all responses are enumerated. */
function peerMean(group, rows, run, i) {
  return meanReward(group, run.sampled ? rows.filter((j) => j !== i) : rows);
}

/** tau log of the mean of e^{r / tau} over the others, without overflow. */
function peerPartition(group, rows, run, i, tau) {
  const others = run.sampled ? rows.filter((j) => j !== i) : rows;
  const top = Math.max(...others.map((j) => group.reward[j]));
  const terms = others.map((j) => group.mass[j] * Math.exp((group.reward[j] - top) / tau));
  return top + tau * Math.log(sum(terms) / sum(others.map((j) => group.mass[j])));
}

function deviationOf(group, rows, run, std) {
  const mean = meanReward(group, rows);
  if (std === "none") return 1;
  const whole = sum(rows.map((i) => group.mass[i]));
  const variance = sum(rows.map((i) => group.mass[i] * (group.reward[i] - mean) ** 2)) / whole;
  return Math.sqrt(std === "sample" && run.sampled ? (variance * rows.length) / (rows.length - 1) : variance);
}

const allEqual = (group, rows) => rows.every((i) => group.reward[i] === group.reward[rows[0]]);

/** What each reward is compared with, [G]; null for a row without one. */
export function baselines(group, run, options) {
  const rows = presentRows(group, run);
  const base = group.reward.map(() => null);
  for (const i of rows) base[i] = baselineOf(group, rows, run, options, i);
  return base;
}

function baselineOf(group, rows, run, options, i) {
  const { name, tau } = options;
  if (name === "pmd-part") {
    const mean = peerPartition(group, rows, run, i, tau);
    if (options.target_cap === null || options.target_cap === undefined || !run.sampled) return mean;
    return Math.max(mean, Math.max(...rows.map((j) => group.reward[j])) - tau * options.target_cap);
  }
  if (OWN_MEAN.has(name) || WHOLE_GROUPS.has(name) || options.baseline === "mean") return meanReward(group, rows);
  if (name === "dro" && typeof options.value === "number") return options.value;
  return peerMean(group, rows, run, i);
}

/** The advantage of each response, reward units (a pure number where it is divided by a deviation); 0 without a reward. */
export function advantages(group, run, options) {
  const rows = presentRows(group, run);
  const base = baselines(group, run, options);
  const standardised = OWN_MEAN.has(options.name);
  const equal = allEqual(group, rows);
  const scale = standardised && !equal ? deviationOf(group, rows, run, options.std ?? "population") : 1;
  return group.reward.map((reward, i) => {
    if (base[i] === null || (standardised && equal)) return 0;
    return (reward - base[i]) / scale;
  });
}

/** The reduction: mass / prompts of the update / length rule, [G]. */
export function weights(group, run, options) {
  const rows = presentRows(group, run);
  const whole = sum(group.mass);
  const silent = run.drop_equal_groups && rows.length > 0 && allEqual(group, rows);
  return group.mass.map((mass, i) => {
    if (!rows.includes(i) || silent) return 0;
    const share = mass / whole / group.of;
    if (options.norm === "length") return share / group.length[i];
    if (options.norm === "max") return share / run.width;
    if (options.norm === "tokens") return (share * group.prompts) / group.tokens;
    return share;
  });
}

/** log pi/pi_old of each response at a policy, nats; null where it was not recorded. */
export function logRatios(group, at) {
  if (at === "old") return group.reward.map(() => 0);
  return group[at] ?? group.reward.map(() => null);
}

/** Slopes of the loss by the log-probability of a response, before the weight. */
const SLOPES = {
  regression: (a, s, o) => (o.scale === "paper" ? 2 : 1) * (o.tau * s - a),
  rloo: (a) => -a,
  chi2(a, s, o) {
    const k = o.kl_share;
    const link = k < 1 ? k * s + (1 - k) * Math.expm1(s) : s;
    return (o.tau * link - a) * (k < 1 ? k + (1 - k) * Math.exp(s) : 1);
  },
  clipped: (a, t, o) => (inBand(a, t, o) ? -a * Math.exp(t) : 0),
  cispo(a, t, o) {
    const [low, high] = logBounds(o.clip_low, o.clip_high);
    return -a * Math.exp(Math.min(Math.max(t, low), high));
  },
};

/** Whether a clipped log-ratio still counts in the direction that the advantage asks for. */
function inBand(a, t, options) {
  const [low, high] = logBounds(options.clip_low, options.clip_high);
  return a >= 0 ? t <= high : t >= low;
}

/** Slope of the whole group's centred regression by each response's log-probability, before the weight of its row. */
function centredSlopes(group, weight, a, d, tau) {
  const whole = sum(group.mass.map((mass, i) => (weight[i] === 0 ? 0 : mass)));
  const mean = sum(d.map((value, i) => (weight[i] === 0 ? 0 : (group.mass[i] * value) / whole)));
  const residual = d.map((value, i) => (weight[i] === 0 ? 0 : a[i] - tau * (value - mean)));
  const pulled = sum(residual.map((value, i) => weight[i] * value));
  return residual.map((value, i) => (weight[i] === 0 ? 0 : -value + (pulled * group.mass[i]) / whole / weight[i]));
}

/**
 * What an objective does to each response of a group at a policy.
 * @param {Object} group columns of the file
 * @param {Object} run its head: sampled, width, drop_equal_groups
 * @param {Object} options of the objective: name, tau, norm, ...
 * @param {"old"|"seen"|"after"} at
 * @returns {{missing: string}|{rows: Array<Object>}} of each response: advantage, baseline, logRatio, coefficient (slope
 *   of its loss by log pi, before the weight; the mean over tokens where each has its own), weight, push = minus their
 *   product, silent = share of its tokens that a clip keeps out; null for a row that was not recorded
 */
export function pushes(group, run, options, at) {
  const { name } = options;
  const s = logRatios(group, at);
  const a = advantages(group, run, options);
  const base = baselines(group, run, options);
  let weight = weights(group, run, options);
  const byToken = BY_TOKEN.has(name);
  const counts = weight.map((value) => value !== 0);
  if (counts.some(Boolean) && !counts.some((each, i) => each && s[i] !== null)) {
    return { missing: "not recorded: no response that counts was scored at this policy" };
  }
  if (WHOLE_GROUPS.has(name) && counts.some((each, i) => each && s[i] === null)) {
    return { missing: "not recorded: this loss compares whole groups, and only a part of this one was scored here" };
  }
  const tokens = group[`${at}_tokens`];
  if (byToken && at !== "old" && !(tokens ?? []).some((each) => each !== null)) {
    return { missing: "not recorded by token: this loss looks at each token, and only sums were recorded here" };
  }
  if (!byToken && group.correction_tokens) {
    return { missing: "this run corrects each token for its engine, and this loss has one slope per response" };
  }
  if (group.correction) weight = weight.map((value, i) => value * group.correction[i]);
  const centred = WHOLE_GROUPS.has(name)
    ? centredSlopes(group, weight, a, s.map((value, i) => (value ?? 0) + (name === "tb" ? (group.anchor?.[i] ?? 0) : 0)), options.tau)
    : null;
  return {
    rows: group.reward.map((_, i) => {
      if (s[i] === null) return null;
      const row = { advantage: a[i], baseline: base[i], logRatio: s[i], weight: weight[i], silent: null };
      if (byToken) Object.assign(row, tokenSlope(name, group, i, at, a[i], options));
      else if (centred) row.coefficient = centred[i];
      else if (name === "gspo") {
        const t = s[i] / group.length[i];
        row.coefficient = SLOPES.clipped(a[i], t, options) / group.length[i];
        row.silent = a[i] !== 0 && !inBand(a[i], t, options) ? 1 : 0;
      } else row.coefficient = SLOPES[{ rloo: "rloo", "chi2-po": "chi2" }[name] ?? "regression"](a[i], s[i], options);
      row.push = 0 - row.coefficient * row.weight;
      return row;
    }),
  };
}

/** Mean slope over the tokens of a response, and the share of them that a clip keeps out. */
function tokenSlope(name, group, i, at, a, options) {
  const t = at === "old" ? new Array(group.length[i]).fill(0) : unpack(group[`${at}_tokens`][i]);
  const factor = group.correction_tokens ? unpack(group.correction_tokens[i]) : t.map(() => 1);
  const slope = name === "cispo" ? SLOPES.cispo : SLOPES.clipped;
  const slopes = t.map((each, k) => factor[k] * slope(a, each, options));
  const out = name === "cispo" || a === 0 ? 0 : t.filter((each) => !inBand(a, each, options)).length;
  return { coefficient: sum(slopes) / t.length, silent: out / t.length };
}

/**
 * Says what is wrong with a file that a reader opened; an empty text if nothing is. It was written by anybody.
 * @param {any} data parsed JSON
 */
export function problemOf(data) {
  const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
  const column = (values, size, kind) => Array.isArray(values) && values.length === size && values.every(kind);
  const orNull = (kind) => (value) => value === null || kind(value);
  const isText = (value) => typeof value === "string";
  if (data === null || typeof data !== "object" || data.format !== 1) {
    return "this is not a file of pmdkit replay --web (it has no format 1); choose a biography.json";
  }
  const { objective, prompts } = data;
  if (!isText(objective?.name) || !isText(data.run) || !Array.isArray(prompts) || prompts.length === 0) {
    return "the file names no objective, no run or no prompt; write it again";
  }
  if (!isNumber(data.width) || typeof data.sampled !== "boolean") return "the file does not say how it was drawn; write it again";
  for (const prompt of prompts) {
    if (!isText(prompt?.text) || !isText(prompt.name) || !Array.isArray(prompt.groups) || prompt.groups.length === 0) {
      return "a prompt of the file has no text or no step; write it again";
    }
    for (const group of prompt.groups) {
      const size = group?.text?.length;
      const whole = ["step", "update", "of", "prompts", "tokens"].every((key) => isNumber(group?.[key]));
      const rows = column(group?.text, size, isText) && column(group.reward, size, orNull(isNumber))
        && column(group.mass, size, isNumber) && column(group.length, size, (n) => Number.isInteger(n) && n > 0);
      const optional = { seen: isNumber, after: isNumber, seen_tokens: isText, after_tokens: isText, anchor: isNumber };
      const more = Object.entries({ ...optional, correction: isNumber, correction_tokens: isText }).every(
        ([key, kind]) => group[key] === undefined || column(group[key], size, orNull(kind)),
      );
      const packed = ["seen_tokens", "after_tokens", "correction_tokens"].every(
        (key) => (group[key] ?? []).every((each, i) => each === null || holds(each, group.length[i])),
      );
      if (!size || !whole || !rows || !more || !packed) {
        return `step ${isNumber(group?.step) ? group.step : "?"} of the file lacks a number or a text; write it again`;
      }
    }
  }
  return "";
}

/** Whether a text is base64 of so many float32 numbers. */
function holds(text, count) {
  try {
    return atob(text).length === 4 * count;
  } catch {
    return false;
  }
}
