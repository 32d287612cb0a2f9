// The simplex explorer: its state, controls and numbers. The pictures are triangle.js and panels.js.

import { button, buttons, choice, slider } from "../common/controls.js";
import { mount, readout, repeat, scheduler, sentence, stage } from "../common/figure.js";
import { onHash, readHash, writeHash } from "../common/hash.js";
import { decimals, html, number } from "../common/svg.js";
import { inside } from "../math/geometry.js";
import { rewards, rewardsHeight, values } from "./panels.js";
import { START, TAU, solver } from "./solve.js";
import { LEAST, heightFor, triangle } from "./triangle.js";

const LAST = 12; // steps
const SHOWS = [["kl", "KL"], ["chi2", "χ²"], ["both", "KL and χ²"], ["mixed", "their mix"], ["none", "none"]];

const PRESETS = [
  ["figure", "The figure", START, ""],
  ["small", "τ too small", { pi: [0.86, 0.1, 0.04], r: [0, 0.9, 1], tau: 0.02, k: 1, show: "kl" },
    "Action 3 is hardly better than action 2, and rarer. PMD-part goes all the way to it; PMD-mean takes both along."],
  ["hard", "A hard prompt", { pi: [0.6, 0.35, 0.05], r: [0, 0, 1], tau: 0.05, k: 1, show: "mixed" },
    "One action in twenty is right. PMD-part is there after one step; PMD-mean needs more. Step on."],
  ["large", "τ large", { pi: [0.6, 0.3, 0.1], r: [0, 0.7, 1], tau: 2, k: 12, show: "both" },
    "With a large τ the two updates agree, and both are slow."],
];

mount("simplex", (body, timer) => {
  const explorer = { state: tidy(readHash(START)), touched: location.hash !== "", story: "", change };
  const picture = triangle(explorer);
  const bars = rewards(explorer);
  const chart = values(LAST);
  const draw = scheduler(show, timer);
  const solve = solver();
  let stop = () => {};

  const left = html("div", {});
  const right = html("div", {});
  const below = html("div", {});
  body.append(html("div", { class: "ex-columns" }, left, right, below));
  const tau = slider({
    label: "temperature τ (reward units)", key: "tau", min: TAU[0], max: TAU[1], value: explorer.state.tau, log: true,
    describe: (value) => `${value} reward units`, onInput: (value) => change({ tau: value }),
  });
  left.append(tau.node);
  stage(left, "Triangle of policies over three actions", heightFor, (...size) => (picture.layout(...size), draw()));
  const words = sentence();
  left.append(words.node);
  stage(below, "Expected reward after each step", () => 150, (...size) => (chart.layout(...size), draw()));

  const contours = choice({
    label: "level lines around πₜ", key: "show", options: SHOWS, value: explorer.state.show,
    onInput: (value) => change({ show: value }),
  });
  stage(right, "Rewards of the three actions", rewardsHeight, (...size) => (bars.layout(...size), draw()));
  const step = button("Step", "step", () => change({ k: explorer.state.k + 1 }));
  const run = button("Iterate", "iterate", () => {
    change({ k: 0 });
    stop = repeat(() => {
      change({ k: explorer.state.k + 1 }, true);
      return explorer.state.k < LAST;
    }, 220);
  });
  right.append(buttons("steps", step, run, button("Back to one step", "one", () => change({ k: 1 }))), contours.node);
  const presets = PRESETS.map(([key, name, state, story]) => button(name, `preset-${key}`, () => {
    change({ ...state, pi: [...state.pi], r: [...state.r] });
    explorer.story = story;
  }));
  right.append(buttons("settings to look at", ...presets));
  const table = readout("Numbers after the last step", [
    ["p1", "action 1"], ["p2", "action 2"], ["p3", "action 3"], ["J", "expected reward J"],
    ["kl", "KL of the step (nats)"], ["chi2", "χ² of the step"], ["weight", "weight of χ², λ/(2τ)"],
  ], [["now", "πₜ"], ["part", "PMD-part", "ex-part"], ["mean", "PMD-mean", "ex-mean"]]);
  right.append(table.node);

  function change(part, running = false) {
    if (!running) stop();
    explorer.touched = true;
    explorer.story = "";
    Object.assign(explorer.state, tidy({ ...explorer.state, ...part }));
    tau.set(explorer.state.tau);
    contours.set(explorer.state.show);
    writeHash(explorer.state);
    draw();
  }

  function show() {
    const { state } = explorer;
    const seen = solve(state);
    picture.draw(state, { ...seen, touched: explorer.touched });
    bars.draw(state);
    chart.draw(seen.paths);
    numbers(state, seen);
    step.disabled = state.k >= LAST;
    words.say([explorer.story, summary(state, seen)].join(" ").trim());
  }

  function numbers(state, { paths }) {
    state.pi.forEach((p, i) => table.show(`p${i + 1}`, "now", p, decimals(p)));
    const value = paths.part[0].value;
    table.show("J", "now", value, decimals(value));
    for (const row of ["kl", "chi2", "weight"]) table.show(row, "now", NaN, "");
    for (const method of ["part", "mean"]) {
      const last = paths[method].at(-1);
      last.probs.forEach((p, i) => table.show(`p${i + 1}`, method, p, decimals(p)));
      table.show("J", method, last.value, decimals(last.value));
      table.show("kl", method, last.kl, number(last.kl));
      table.show("chi2", method, last.chi2, number(last.chi2));
      const weight = method === "part" ? 0 : (state.k === 0 ? NaN : last.lam / (2 * state.tau));
      table.show("weight", method, weight, number(weight));
    }
  }

  onHash(() => change(readHash(START)));
});

/** A state within the limits: an address can be edited by hand. */
function tidy({ pi, r, tau, k, show }) {
  const least = Math.min(...pi) < LEAST || Math.abs(pi[0] + pi[1] + pi[2] - 1) > 1e-9 ? LEAST : 0;
  return {
    pi: least ? inside(pi, least) : pi,
    r: r.map((value) => Math.min(1, Math.max(0, value))),
    tau: Math.min(TAU[1], Math.max(TAU[0], tau)),
    k: Math.min(LAST, Math.max(0, Math.round(k))),
    show: SHOWS.some(([key]) => key === show) ? show : "kl",
  };
}

function summary({ r, tau, k }, { paths }) {
  const [part, mean] = [paths.part.at(-1), paths.mean.at(-1)];
  if (Math.max(...r) === Math.min(...r)) return "All three actions have the same reward: nothing moves.";
  if (k === 0) return "No step yet.";
  const gain = `After ${k === 1 ? "one step" : `${k} steps`} at τ = ${number(tau)} the expected reward is `
    + `${decimals(part.value)} with PMD-part and ${decimals(mean.value)} with PMD-mean, from ${decimals(paths.part[0].value)}.`;
  const first = paths.mean[1];
  return `${gain} In the first step PMD-mean moves ${number(first.kl, 2)} nats of KL where PMD-part moves `
    + `${number(paths.part[1].kl, 2)}: its own normalisation adds a χ² penalty of weight λ/(2τ) = ${number(first.lam / (2 * tau), 2)}.`;
}
