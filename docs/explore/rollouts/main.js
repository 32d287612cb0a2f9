// The rollout lab: its state, controls, draws and numbers. The pictures are lanes.js and errors.js.

import { button, buttons, slider } from "../common/controls.js";
import { mount, readout, repeat, scheduler, sentence, stage } from "../common/figure.js";
import { onHash, readHash, writeHash } from "../common/hash.js";
import { decimals, html, number } from "../common/svg.js";
import { binary } from "../math/pmd.js";
import { Dice, binomial, groupError, groupTargets, kinds, targetError } from "../math/targets.js";
import { NS, errors, errorsHeight, percent } from "./errors.js";
import { lanes, lanesHeight } from "./lanes.js";

const START = { p: 0.05, n: 16, tau: 0.05, s: 1, seed: 1 };
const LIMITS = { p: [0.001, 0.999], n: [2, 1024], tau: [0.005, 5] };
const METHODS = [["part", "pmd-part"], ["mean", "pmd-mean"]];
const BATCH = 100; // groups

const PRESETS = [
  ["lone", "The lone success", START],
  ["silent", "A silent group", { ...START, s: 0 }],
  ["half", "Half right", { ...START, p: 0.5, s: 8 }],
  ["many", "Many responses", { ...START, n: 512, s: 26 }],
  ["warm", "τ large", { ...START, tau: 1 }],
];

mount("rollouts", (body, timer) => {
  const lab = { state: tidy(readHash(START)), change };
  const targets = lanes(lab);
  const curve = errors(lab);
  const draw = scheduler(show, timer);
  let dice = new Dice(lab.state.seed);
  let tallies = new Map();
  let seenFor = ""; // p and tau of the draws
  let exact = { key: "" };
  let stop = () => {};

  const left = html("div", {});
  const right = html("div", {});
  const below = html("div", {});
  body.append(html("div", { class: "ex-columns" }, left, right, below));
  stage(left, "Targets of one group beside the true log ratios", lanesHeight, (...size) => (targets.layout(...size), draw()));
  const words = sentence();
  left.append(buttons("draws", button("Draw a group", "draw", () => deal(1)),
    button(`Draw ${BATCH} groups`, "batch", () => deal(BATCH)), button("Build the figure", "build", build),
    button("Clear draws", "clear", () => change({ seed: lab.state.seed + 1 }, true))), words.node);
  stage(below, "Squared target error against group size", errorsHeight, (...size) => (curve.layout(...size), draw()));

  const sliders = {
    p: slider({ label: "pass rate p", key: "p", min: LIMITS.p[0], max: LIMITS.p[1], value: lab.state.p, log: true,
      onInput: (value) => change({ p: value }) }),
    n: slider({ label: "responses per prompt n", key: "n", min: LIMITS.n[0], max: LIMITS.n[1], value: lab.state.n, log: true,
      whole: true, onInput: (value) => change({ n: value }) }),
    tau: slider({ label: "temperature τ (rewards 0 and 1)", key: "tau", min: LIMITS.tau[0], max: LIMITS.tau[1],
      value: lab.state.tau, log: true, describe: (value) => `${value} reward units`, onInput: (value) => change({ tau: value }) }),
  };
  right.append(...Object.values(sliders).map((control) => control.node));
  right.append(buttons("settings to look at", ...PRESETS.map(([key, name, state]) =>
    button(name, `preset-${key}`, () => change({ ...state }, true)))));
  const table = readout("This prompt and this group", [
    ["truth-right", "true log ratio, right"], ["target-right", "target, right"],
    ["truth-wrong", "true log ratio, wrong"], ["target-wrong", "target, wrong"],
    ["group", "error of this group (nats²)"], ["expected", "expected error (nats²)"], ["drawn", "mean of your draws"],
  ], [["part", "PMD-part", "ex-part"], ["mean", "PMD-mean", "ex-mean"]]);
  const share = html("p", { class: "ex-note" });
  right.append(table.node, share);

  /** One more group of the present size; the last one is shown. */
  function deal(groups) {
    stop();
    change({ s: sample(lab.state.n, groups) });
  }

  function sample(n, groups) {
    const { p, tau } = lab.state;
    fresh();
    const tally = tallies.get(n) ?? { groups: 0, part: { sum: 0, squares: 0 }, mean: { sum: 0, squares: 0 }, counts: new Map() };
    tallies.set(n, tally);
    let s = 0;
    const errorOf = new Map(); // groups with the same count have the same error
    for (let k = 0; k < groups; k++) {
      s = dice.successes(p, n);
      if (!errorOf.has(s)) errorOf.set(s, METHODS.map(([, method]) => groupError(p, n, tau, method, s)));
      METHODS.forEach(([short], i) => {
        tally[short].sum += errorOf.get(s)[i];
        tally[short].squares += errorOf.get(s)[i] ** 2;
      });
      tally.counts.set(s, (tally.counts.get(s) ?? 0) + 1);
    }
    tally.groups += groups;
    return s;
  }

  /** Draws belong to one pass rate and one temperature: another setting starts again. */
  function fresh() {
    const key = `${lab.state.p} ${lab.state.tau}`;
    if (seenFor !== key) tallies = new Map();
    seenFor = key;
  }

  function build() {
    stop();
    let k = 0;
    const { n } = lab.state;
    stop = repeat(() => {
      sample(NS[k], BATCH);
      draw();
      k += 1;
      return k < NS.length;
    }, 160);
    change({ n }, false, true);
  }

  function change(part, clear = false, running = false) {
    if (!running) stop();
    const before = lab.state;
    lab.state = tidy({ ...before, ...part });
    // another group size keeps the share of right responses; a lone success stays alone
    if (part.n !== undefined && part.s === undefined) {
      const s = before.s <= 1 ? before.s : Math.round((before.s / before.n) * lab.state.n);
      lab.state = tidy({ ...lab.state, s });
    }
    if (clear) {
      tallies = new Map();
      dice = new Dice(lab.state.seed);
    }
    fresh();
    for (const [key, control] of Object.entries(sliders)) control.set(lab.state[key]);
    writeHash(lab.state);
    draw();
  }

  function show() {
    const { state } = lab;
    const seen = solve(state);
    targets.draw(state, seen);
    curve.draw(state, tallies);
    numbers(state, seen);
    words.say(summary(state, seen));
    const [silent, lone] = kinds(state.p, state.n);
    share.textContent = `At p = ${number(state.p)}, ${percent(silent)} of groups of ${state.n} have no right response and `
      + `${percent(lone)} have exactly one.`;
  }

  /** Truth, targets of this group, and how targets are distributed, exactly and in the draws. */
  function solve({ p, n, tau, s }) {
    const key = `${p} ${n} ${tau}`;
    if (exact.key !== key) {
      const peers = binomial(n - 1, p);
      exact = { key };
      for (const [short, method] of METHODS) {
        const at = (reward) => peers.map((weight, k) =>
          [groupTargets(k + (reward === "right" ? 1 : 0), n, tau, method)[reward], weight]);
        exact[short] = { right: at("right"), wrong: at("wrong"), error: targetError(p, n, tau, method) };
      }
    }
    const seen = {};
    for (const [short, method] of METHODS) {
      const { right: up, wrong: down, error } = exact[short];
      seen[short] = { truth: binary(p, tau, method), target: groupTargets(s, n, tau, method), exact: { right: up, wrong: down },
        error, group: groupError(p, n, tau, method, s), drawn: histogram(tallies.get(n), n, tau, method) };
    }
    return seen;
  }

  /** [[target, share of the drawn responses of this kind], ...] */
  function histogram(tally, n, tau, method) {
    const found = { right: [], wrong: [] };
    for (const [s, count] of tally?.counts ?? []) {
      const target = groupTargets(s, n, tau, method);
      if (s > 0) found.right.push([target.right, count * s]);
      if (s < n) found.wrong.push([target.wrong, count * (n - s)]);
    }
    for (const list of Object.values(found)) {
      const total = list.reduce((sum, [, weight]) => sum + weight, 0);
      for (const pair of list) pair[1] /= total;
    }
    return found;
  }

  function numbers({ n }, seen) {
    const tally = tallies.get(n);
    for (const [short] of METHODS) {
      const { truth, target, group, error } = seen[short];
      const tell = (row, value) => table.show(row, short, value, decimals(value, 2));
      tell("truth-right", truth.right);
      tell("target-right", target.right);
      tell("truth-wrong", truth.wrong);
      tell("target-wrong", target.wrong);
      tell("group", group);
      tell("expected", error.mean);
      const mean = tally ? tally[short].sum / tally.groups : NaN;
      table.show("drawn", short, mean, tally ? `${number(mean)} (${tally.groups})` : "–");
    }
  }

  onHash(() => change(readHash(START), true));
});

/** A state within the limits: an address can be edited by hand. */
function tidy({ p, n, tau, s, seed }) {
  const within = (value, [low, high]) => Math.min(high, Math.max(low, value));
  const size = Math.round(within(n, LIMITS.n));
  return { p: within(p, LIMITS.p), n: size, tau: within(tau, LIMITS.tau), s: Math.round(within(s, [0, size])),
    seed: Math.abs(Math.round(seed)) };
}

function summary({ n, s, tau }, { part, mean }) {
  const nats = (value) => decimals(value, 1);
  const off = (seen, side) => number(Math.abs(seen.target[side] - seen.truth[side]), 2);
  if (s === 0 || s === n) {
    const side = s === 0 ? "wrong" : "right";
    return `A silent group: every reward is the same and every target is 0. The true log ratio of a ${side} response is `
      + `${nats(part.truth[side])} nats for PMD-part, so each target is ${off(part, side)} off, and ${nats(mean.truth[side])} for `
      + `PMD-mean, ${off(mean, side)} off.`;
  }
  const others = `Targets of wrong responses are off by ${off(part, "wrong")} nats (PMD-part) and ${off(mean, "wrong")} (PMD-mean).`;
  if (s === 1) {
    return `The lone success: its ${n === 2 ? "peer is" : `${n - 1} peers are all`} wrong, so nothing is taken off its reward, and `
      + `its target is 1/τ = ${nats(1 / tau)} nats for both methods. The truth is ${nats(part.truth.right)} for PMD-part and `
      + `${nats(mean.truth.right)} for PMD-mean. ${others}`;
  }
  return `${s} of ${n} are right. A right response is told ${nats(part.target.right)} nats by PMD-part (truth `
    + `${nats(part.truth.right)}) and ${nats(mean.target.right)} by PMD-mean (truth ${nats(mean.truth.right)}). ${others}`;
}
