// The anchor law: its controls, numbers and sentence. The picture is picture.js.

import { button, buttons, slider } from "../common/controls.js";
import { mount, readout, scheduler, sentence, stage } from "../common/figure.js";
import { onHash, readHash, writeHash } from "../common/hash.js";
import { html, number } from "../common/svg.js";
import { anchor, growth, threshold } from "../math/anchor.js";
import { heightFor, panels } from "./picture.js";

const START = { tau: 0.05, n: 16, M: 16, p: 0.2, rate: 0.2 };
const LIMITS = { tau: [0.005, 2], n: [2, 256], M: [1, 64], p: [0.01, 0.99], rate: [0.01, 0.5] };
const WHOLE = ["n", "M"];
const LABELS = {
  tau: "temperature τ (rewards 0 and 1)", n: "responses per prompt n", M: "stale ministeps M", p: "pass rate p",
  rate: "learning rate times Fisher eigenvalue",
};
const PRESETS = [
  ["paper", "τ below the threshold", START],
  ["warm", "τ above it", { ...START, tau: 0.5 }],
  ["fresh", "One ministep", { ...START, M: 1 }],
  ["few", "Few responses", { ...START, n: 4 }],
];

mount("anchor", (body, timer) => {
  const explorer = { state: tidy(readHash(START)), change };
  const picture = panels(explorer, LIMITS.tau);
  const draw = scheduler(show, timer);
  const words = sentence();
  const left = html("div", {});
  const right = html("div", {});
  body.append(html("div", { class: "ex-columns" }, left, right));
  stage(left, "Push and pull, and what ministeps make of them, against τ", heightFor, (...size) => (picture.layout(...size), draw()));
  left.append(words.node);
  const sliders = Object.entries(LABELS).map(([key, label]) => [key, slider({
    label, key, min: LIMITS[key][0], max: LIMITS[key][1], value: explorer.state[key], log: key !== "p", whole: WHOLE.includes(key),
    onInput: (value) => change({ [key]: value }),
  })]);
  right.append(...sliders.map(([, control]) => control.node));
  right.append(buttons("settings to look at", ...PRESETS.map(([key, name, state]) => button(name, `preset-${key}`, () => change(state)))));
  const table = readout("Directions that the reward says nothing about", [
    ["push", "push away from π_old, c"], ["net", "net pull back, τ − c"], ["factor", "what M ministeps make of a drift, times"],
  ], [["part", "PMD-part", "ex-part"], ["mean", "PMD-mean", "ex-mean"]]);
  const turn = html("p", { class: "ex-note" });
  right.append(table.node, turn);

  function change(part) {
    explorer.state = tidy({ ...explorer.state, ...part });
    for (const [key, control] of sliders) control.set(explorer.state[key]);
    writeHash(explorer.state);
    draw();
  }

  function show() {
    const { tau, n, M, p, rate } = explorer.state;
    const c = { part: anchor(p, tau, n), mean: 0 };
    const limit = threshold(p, n);
    picture.draw(explorer.state, limit);
    const factor = {};
    for (const [method, push] of Object.entries(c)) {
      factor[method] = growth(push, tau, rate, M);
      for (const [row, value] of [["push", push], ["net", tau - push], ["factor", factor[method]]]) {
        table.show(row, method, value, number(value));
      }
    }
    turn.textContent = limit > 0 ? `At p = ${number(p)} and n = ${n} the push wins below τ = ${number(limit)}.`
      : "A single peer is its own mean: there is no push at any τ.";
    turn.dataset.value = limit;
    words.say(summary(explorer.state, c.part, factor));
  }

  draw();
  onHash(() => change(readHash(START)));
});

/** A state within the limits: an address can be edited by hand. */
function tidy(state) {
  return Object.fromEntries(Object.entries(LIMITS).map(([key, [min, max]]) => {
    const value = Math.min(max, Math.max(min, state[key]));
    return [key, WHOLE.includes(key) ? Math.round(value) : value];
  }));
}

function summary({ tau, M }, c, { part, mean }) {
  const steps = M === 1 ? "one ministep, which is fresh," : `${M} ministeps`;
  const other = `PMD-mean multiplies it by ${number(mean)}.`;
  if (c > tau) {
    return `PMD-part pushes away from π_old with ${number(c)} and pulls back with τ = ${number(tau)}: ${steps} multiply a drift that the `
      + `reward says nothing about by ${number(part)}. ${other}`;
  }
  return `PMD-part pulls back with τ = ${number(tau)} and pushes away with ${number(c)} only: ${steps} multiply a drift by ${number(part)}. ${other}`;
}
