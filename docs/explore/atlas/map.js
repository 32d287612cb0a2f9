// The map of the atlas: share of the gap closed against the pass rate, one line for each loss, those that never rest above.
// Three lines have a name and a colour, the others are grey until one points at them: nobody reads 27 at once.

import { axis, line, linear, set, svg } from "../common/svg.js";
import { etaAt } from "../math/atlas.js";

const LANE = 6; // pixels between the lines of losses that never rest
const HEAD = 30;
const FOOT = 42;
const NEAR = 26; // pixels from the pointer to a line
const SAME = 2.5; // lines this close lie on one another
const SHARES = [0, 0.2, 0.4, 0.6, 0.8, 1];
const MARKS = [0.01, 0.1, 0.5, 0.9, 0.99];

/** The lines with a name: its words, and where they stand: at a pass rate, pixels right of the line and below it. */
export const NAMED = {
  "pmd-part": { words: "PMD-part", colour: "--ex-part", at: [0.015, 0, 15] },
  "pmd-mean": { words: "PMD-mean", colour: "--ex-mean", at: [0.09, 9, 12] },
  grpo: { words: "GRPO", colour: "--at-BF8300", at: [0.05, 0, -7] },
};

const logit = (p) => Math.log(p / (1 - p));
const rate = (x) => 1 / (1 + Math.exp(-x));

/** Pixels of the stage. */
export const heightFor = (width) => (width < 480 ? 440 : 500);

/**
 * The map.
 * @param {{rates: number[], losses: Object, facts: Object}} tables
 * @param {Object<string, string>} paint by loss, the style that gives its colour
 * @param {(names: string[], p: number) => void} see the losses under the pointer, the nearest first; none if it left
 * @param {(name: string) => void} open a loss was clicked
 */
export function map(tables, paint, see, open) {
  const { rates, losses, facts } = tables;
  const names = Object.keys(facts);
  const grid = Array.from({ length: 97 }, (_, k) => rate(logit(rates[0]) + (k / 96) * (logit(rates.at(-1)) - logit(rates[0]))));
  const ps = [...grid, ...rates].sort((a, b) => a - b);
  const restless = names.filter((name) => [losses[name].eta, ...Object.values(losses[name].eta_by_tau)].flat().includes(null));
  const top = HEAD + (restless.length + 2) * LANE;
  const frame = svg("g", {});
  const probe = svg("line", { class: "at-probe" });
  const paths = new Map(names.map((name) => [name, svg("path", {
    class: `at-line ${name in NAMED ? "at-named" : ""}`, style: paint(name), "data-line": name,
    "stroke-dasharray": facts[name].dash.map((length) => 1.8 * length).join(" ") || null,
  })]));
  const lines = svg("g", {}, ...paths.values());
  const words = new Map(Object.entries(NAMED).map(([name, { words: said }]) => [
    name, svg("text", { class: `at-name ex-rim ${name.replace("pmd-", "ex-")}`, style: paint(name), "aria-hidden": "true" }, said),
  ]));
  let [across, up] = [linear([-1, 1], [0, 1]), linear([0, 1], [1, 0])];
  let box = { left: 0, right: 1, top, bottom: 1 };
  let tau = 1;
  let lit = [];
  let touched = false;

  function layout(node, width, height) {
    box = { left: 40, right: width - 14, top, bottom: height - FOOT };
    across = linear([logit(rates[0]), logit(rates.at(-1))], [box.left, box.right]);
    up = linear([0, 1], [box.bottom, box.top]);
    frame.replaceChildren(
      axis("left", up, { ...box, top: HEAD }, { ticks: SHARES, label: "share of the gap to 1 that one exact step closes" }),
      axis("bottom", across, box, { ticks: MARKS.map(logit), format: (x) => String(Number(rate(x).toPrecision(3))), label: "pass rate before the step" }),
      svg("text", { x: box.left + 5, y: HEAD + 6, class: "ex-quiet ex-rim" }, "never rests"),
    );
    if (frame.parentNode !== null) return;
    for (const name in NAMED) lines.append(paths.get(name));
    node.append(frame, probe, lines, ...words.values());
    node.addEventListener("pointerdown", (event) => { touched = event.pointerType !== "mouse"; });
    node.addEventListener("pointermove", (event) => look(node, event));
    node.addEventListener("pointerleave", () => { if (!touched) see([], NaN); });
    node.addEventListener("click", (event) => {
      const found = look(node, event);
      if (found.length && !touched) open(found[0]); // a finger reads first; the card has the link
    });
  }

  /** Where a loss is at a pass rate, pixels from the top. */
  function height(name, p) {
    const eta = etaAt(tables, name, tau, p);
    return eta === null ? HEAD + (restless.indexOf(name) + 1.5) * LANE : up(eta);
  }

  function look(node, event) {
    const area = node.getBoundingClientRect();
    const x = ((event.clientX - area.left) * node.viewBox.baseVal.width) / area.width;
    const y = ((event.clientY - area.top) * node.viewBox.baseVal.height) / area.height;
    const p = Math.min(rates.at(-1), Math.max(rates[0], rate(across.invert(x))));
    const places = names.map((name) => [name, height(name, p)]).sort((a, b) => Math.abs(a[1] - y) - Math.abs(b[1] - y));
    const [, at] = places[0];
    const found = Math.abs(at - y) > NEAR ? [] : places.filter((each) => Math.abs(each[1] - at) < SAME).map(([name]) => name);
    see(found, p);
    return found;
  }

  /** @param {number} now temperature, reward units; @param {number} p the pass rate that the table is about */
  function draw(now, p) {
    tau = now;
    for (const [name, path] of paths) {
      const points = [];
      let above = null;
      for (const each of ps) {
        const rests = etaAt(tables, name, tau, each) !== null;
        if (above !== null && above === rests) points.push(null);
        above = !rests;
        points.push([across(logit(each)), height(name, each)]);
      }
      set(path, { d: line(points) });
    }
    for (const [name, { at: [rateAt, dx, dy] }] of Object.entries(NAMED)) {
      set(words.get(name), { x: across(logit(rateAt)) + dx, y: height(name, rateAt) + dy });
    }
    set(probe, { x1: across(logit(p)), x2: across(logit(p)), y1: HEAD, y2: box.bottom });
    light(lit);
  }

  /** Bring lines forward; the three with a name if there are none. */
  function light(found) {
    lit = found;
    for (const [name, path] of paths) set(path, { "data-lit": found.length === 0 ? null : String(found.includes(name)) });
    for (const [name, node] of words) set(node, { opacity: found.length === 0 || found.includes(name) ? null : 0.22 });
    for (const name of found.length ? found : Object.keys(NAMED)) lines.append(paths.get(name));
  }

  return { layout, draw, light };
}
