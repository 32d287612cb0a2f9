// The rollout lab: its state, controls, draws and numbers. The pictures are lanes.js and errors.js.

import { button, buttons, slider } from "../common/controls.js";
import { mount, readout, scheduler, sentence, stage } from "../common/figure.js";
import { onHash, readHash, writeHash } from "../common/hash.js";
import { decimals, html, number } from "../common/svg.js";
import { binary } from "../math/pmd.js";
import { Dice, binomial, groupError, groupTargets, kinds, targetError } from "../math/targets.js";
import { authors, authorsHeight } from "./authors.js";
import { METHODS, NS, errors, errorsHeight, percent } from "./errors.js";
import { lanes, lanesHeight } from "./lanes.js";

const START = { p: 0.05, n: 16, tau: 0.05, s: 1, seed: 1, u: 0.6 };
const LIMITS = { p: [0.001, 0.999], n: [2, 1024], tau: [0.005, 5], u: [0.1, 3] };
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
  const curve = errors();
  const writers = authors();
  const draw = scheduler(show, timer);
  let dice = new Dice(lab.state.seed);
  let tallies = new Map();
  let exact = { key: "" };

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
  const dial = (key, label, more) => slider({ label, key, min: LIMITS[key][0], max: LIMITS[key][1], value: lab.state[key],
    log: true, onInput: (value) => change({ [key]: value }), ...more });
  const sliders = { p: dial("p", "pass rate p"), n: dial("n", "responses per prompt n", { whole: true }),
    tau: dial("tau", "temperature τ (rewards 0 and 1)", { describe: (value) => `${value} reward units` }) };
  right.append(...Object.values(sliders).map((control) => control.node));
  sliders.u = dial("u", "an update takes (rollouts)");
  below.append(sliders.u.node);
  stage(below, "Which weights draw the tokens of a step", authorsHeight, (...size) => (writers.layout(...size), draw()));
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
    change({ s: sample(lab.state.n, groups) });
  }

  function sample(n, groups) {
    const { p, tau } = lab.state;
    const tally = tallies.get(n) ?? { groups: 0, part: { sum: 0, squares: 0 }, mean: { sum: 0, squares: 0 } };
    tallies.set(n, tally);
    let s = 0;
    for (let k = 0; k < groups; k++) {
      s = dice.successes(p, n);
      for (const [short, method] of METHODS) {
        const error = groupError(p, n, tau, method, s);
        tally[short].sum += error;
        tally[short].squares += error ** 2;
      }
    }
    tally.groups += groups;
    return s;
  }

  function build() {
    for (const n of NS) sample(n, BATCH);
    draw();
  }

  function change(part, clear = false) {
    const before = lab.state;
    lab.state = tidy({ ...before, ...part });
    // another group size keeps the share of right responses; a lone success stays alone
    if (part.n !== undefined && part.s === undefined) {
      const s = before.s <= 1 ? before.s : Math.round((before.s / before.n) * lab.state.n);
      lab.state = tidy({ ...lab.state, s });
    }
    if (clear) dice = new Dice(lab.state.seed);
    // draws belong to one pass rate and one temperature
    if (clear || before.p !== lab.state.p || before.tau !== lab.state.tau) tallies = new Map();
    for (const [key, control] of Object.entries(sliders)) control.set(lab.state[key]);
    writeHash(lab.state);
    draw();
  }

  function show() {
    const { state } = lab;
    const seen = solve(state);
    targets.draw(state, seen);
    curve.draw(state, tallies);
    writers.draw(state);
    numbers(state, seen);
    words.say(summary(state, seen));
    const [silent, lone] = kinds(state.p, state.n);
    share.textContent = `At p = ${number(state.p)}, ${percent(silent)} of groups of ${state.n} have no right response and `
      + `${percent(lone)} have exactly one.`;
  }

  /** Truth, targets of this group, and how targets are distributed. */
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
        error, group: groupError(p, n, tau, method, s) };
    }
    return seen;
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
function tidy({ p, n, tau, s, seed, u }) {
  const within = (value, [low, high]) => Math.min(high, Math.max(low, value));
  const size = Math.round(within(n, LIMITS.n));
  return { p: within(p, LIMITS.p), n: size, tau: within(tau, LIMITS.tau), s: Math.round(within(s, [0, size])),
    seed: Math.abs(Math.round(seed)), u: within(u, LIMITS.u) };
}

function summary({ n, s }, { part, mean }) {
  const nats = (value) => decimals(value, 1);
  const off = (seen, side) => number(Math.abs(seen.target[side] - seen.truth[side]), 2);
  if (s === 0 || s === n) {
    const side = s === 0 ? "wrong" : "right";
    return `A silent group: all targets are 0. The true log ratio of a ${side} response is ${nats(part.truth[side])} nats for `
      + `PMD-part, so each target is ${off(part, side)} off, and ${nats(mean.truth[side])} for PMD-mean, ${off(mean, side)} off.`;
  }
  const who = s === 1 ? "The lone success has only wrong peers, so nothing is taken off its reward." : `${s} of ${n} are right.`;
  return `${who} A right response is told ${nats(part.target.right)} nats by PMD-part (truth ${nats(part.truth.right)}) and `
    + `${nats(mean.target.right)} by PMD-mean (truth ${nats(mean.truth.right)}). Targets of wrong responses are off by `
    + `${off(part, "wrong")} nats (PMD-part) and ${off(mean, "wrong")} (PMD-mean).`;
}
