// Biography of a prompt: the reasons in words. Numbers come from ../math/recorded.js; nothing is drawn here.

import { number } from "../common/svg.js";

export const PLACES = { old: "the policy that drew them", seen: "before their update", after: "after the step" };

/** Why a response is pushed, from its reward to the slope on its tokens. */
export function reason(row, group, i, run, options, title) {
  if (row === null) return "This response was not scored at this policy, so nothing is known of its push.";
  if (group.reward[i] === null) return "The verifier came to no verdict. The response has mass 0, and nothing follows from it.";
  if (row.weight === 0) return "Its group has weight 0 in this run: all rewards are equal, and the run leaves such groups out.";
  return [earned(row, group, i, run, options), ...aim(row, options, title), paid(row, group, i, options)].join(" ");
}

function earned(row, group, i, run, options) {
  const standardised = ["grpo", "dapo", "gspo", "cispo"].includes(options.name) && options.std !== "none";
  const base = row.baseline === null ? "nothing" : number(row.baseline);
  const what = options.name === "pmd-part" ? `τ log Z of ${run.sampled ? "the others" : "the group"}` : "a mean reward";
  const words = `Its reward is ${number(group.reward[i])}; it is compared with ${base}, ${what}.`;
  const divided = standardised ? ", after division by the group's standard deviation" : "";
  return `${words} So its advantage is ${number(row.advantage)}${divided}.`;
}

/** Where the loss sends it. */
function aim(row, options, title) {
  const { tau } = options;
  const a = row.advantage;
  if (["pmd-mean", "pmd-part", "dro"].includes(options.name)) {
    const target = a / tau;
    const place = `Its target is advantage / τ = ${number(target)} nats, and it is at ${number(row.logRatio)}`;
    if (row.push === 0) return [`${place}: at rest.`];
    return [`${place}: ${row.push > 0 ? "below its target, so it is raised" : "above its target, so it is lowered"}.`];
  }
  if (["rebel", "tb"].includes(options.name)) return [`${title} compares it with its group: ${direction(row)}.`];
  if (options.name === "rloo") return [`${title} has no target: ${direction(row)}, wherever it is.`];
  if (row.silent === null || row.silent === 0) return [`At log-ratio ${number(row.logRatio)}: ${direction(row)}.`];
  if (row.silent === 1) return ["It has left the band of the clip, so it gets no push at all, and nothing pulls it back."];
  return [`${number(100 * row.silent, 2)} % of its tokens have left the band of the clip and get no push; the others: ${direction(row)}.`];
}

const direction = (row) => (row.push > 0 ? "it is raised" : row.push < 0 ? "it is lowered" : "it gets no push");

function paid(row, group, i, options) {
  const rule = {
    length: `divided by its ${group.length[i]} tokens`, max: "divided by the budget of tokens",
    tokens: "divided by the tokens of the batch", none: "not divided by its length",
  }[options.norm];
  return `Slope ${number(-row.coefficient)} times weight ${number(row.weight)} (${rule}) is a push of ${number(row.push)} on each token.`;
}

/** One sentence on the whole group. */
export function summary(group, found, run, options, title, where) {
  const right = run.passed === null || run.passed === undefined ? null
    : group.reward.filter((reward) => reward !== null && reward > run.passed).length;
  const size = group.reward.filter((reward) => reward !== null).length;
  const start = `Step ${group.step}: ${right === null ? `${size} responses` : `${right} of ${size} responses are right`}.`;
  if (found.missing) return `${start} ${title}, ${where}: ${found.missing}.`;
  const pushed = found.rows.filter((row) => row !== null);
  const up = pushed.filter((row) => row.push > 0).length;
  const down = pushed.filter((row) => row.push < 0).length;
  const tau = options.tau === undefined ? "" : ` at τ = ${number(options.tau)}`;
  if (up + down === 0) return `${start} ${title}${tau} pushes none of them: their rewards are equal and nothing has moved.`;
  const total = pushed.reduce((sum, row) => sum + Math.abs(row.push), 0);
  const share = pushed.reduce((sum, row) => sum + Math.max(row.push, 0), 0) / total;
  const silent = pushed.filter((row) => row.silent > 0).length;
  const clipped = silent ? ` ${silent} of them ${silent === 1 ? "has" : "have"} tokens that the clip keeps out.` : "";
  return `${start} ${title}${tau} raises ${up} and lowers ${down}; ${number(100 * share, 2)} % of the push is upward.${clipped}`;
}
