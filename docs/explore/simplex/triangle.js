// The picture of the simplex explorer: triangle, level lines, solutions for every tau, steps, the policy to drag.

import { draggable } from "../common/controls.js";
import { decimals, line, number, set, svg, text } from "../common/svg.js";
import { HEIGHT, divergence, levelLine, rewardLine, toPlace, toPolicy } from "../math/geometry.js";

const CORNERS = [[1, 0, 0], [0, 1, 0], [0, 0, 1]];
const KL_LEVELS = [0.02, 0.1, 0.3, 0.7, 1.4]; // nats
const CHI2_LEVELS = KL_LEVELS.map((level) => 2 * level); // near pi_t chi2 is twice the KL: the lines start together
const PARTS = [0.1, 0.4, 2, 4]; // of the regulariser at PMD-mean's solution
export const LEAST = 0.005; // of a probability: level lines need all three actions
const NUDGE = 0.01; // of the side of the triangle, per arrow key

/** Pixels of the stage for a width: the triangle keeps its angles and stays on one screen. */
export function heightFor(width) {
  return sideFor(width) * HEIGHT + 86;
}

function sideFor(width) {
  return Math.min(width - 70, 520);
}

/**
 * @param {{pi: number[], change: (part: Object) => void}} explorer `change({pi})` takes what the reader dragged
 * @returns {{layout: Function, draw: Function}}
 */
export function triangle(explorer) {
  const levels = new Lines("ex-level");
  const others = new Lines("ex-level ex-dotted");
  const words = svg("g", { "aria-hidden": "true" });
  const frame = svg("path", { class: "ex-frame" });
  const sweeps = { part: svg("path", { class: "ex-sweep ex-part" }), mean: svg("path", { class: "ex-sweep ex-mean" }) };
  const touch = { part: svg("path", { class: "ex-touch ex-part" }), mean: svg("path", { class: "ex-touch ex-mean" }) };
  const tangent = svg("path", { class: "ex-tangent" });
  const trails = { part: svg("path", { class: "ex-stroke ex-part" }), mean: svg("path", { class: "ex-stroke ex-mean" }) };
  const marks = { part: svg("g", {}), mean: svg("g", {}) };
  const corners = CORNERS.map(() => [svg("text", {}), svg("text", { class: "ex-quiet" })]);
  const hint = svg("text", { class: "ex-hint ex-rim", "aria-hidden": "true" }, "drag the policy");
  const star = svg("g", {}, svg("circle", { r: 22, class: "ex-hit" }), svg("circle", { r: 15, class: "ex-ring" }),
    svg("path", { d: starPath(11), class: "ex-star" }));
  let place = ([x, y]) => [x, y];
  let back = place;

  const handle = draggable(star, {
    label: "policy πₜ: left and right move towards action 1 and 2, up towards action 3",
    min: 0,
    max: 1,
    now: () => explorer.state.pi[2],
    describe: () => explorer.state.pi.map((p, i) => `action ${i + 1}: ${decimals(p, 2)}`).join(", "),
    at: () => place(toPlace(explorer.state.pi)),
    move: (x, y) => explorer.change({ pi: toPolicy(back([x, y]), LEAST) }),
    nudge: (dx, dy) => {
      const [x, y] = toPlace(explorer.state.pi);
      explorer.change({ pi: toPolicy([x + dx * NUDGE, y + dy * NUDGE], LEAST) });
    },
  });

  function layout(node, width) {
    const side = sideFor(width);
    const left = (width - side) / 2;
    const bottom = side * HEIGHT + 42;
    place = ([x, y]) => [left + x * side, bottom - y * side];
    back = ([x, y]) => [(x - left) / side, (bottom - y) / side];
    set(frame, { d: line([...CORNERS, CORNERS[0]].map(toPlace).map(place)) });
    CORNERS.forEach((corner, i) => {
      const [x, y] = place(toPlace(corner));
      const top = i === 2;
      const anchor = ["start", "end", "middle"][i];
      const shift = [-left + 6, left - 6, 0][i];
      set(corners[i][0], { x: x + shift, y: y + (top ? -28 : 18), "text-anchor": anchor });
      set(corners[i][1], { x: x + shift, y: y + (top ? -13 : 33), "text-anchor": anchor });
    });
    if (frame.parentNode === null) {
      node.append(levels.node, others.node, frame, tangent, touch.part, touch.mean, sweeps.part, sweeps.mean);
      node.append(trails.part, trails.mean, words, legend(), marks.part, marks.mean, hint, star, ...corners.flat());
    }
  }

  /** @param {Object} seen what `solve` in main.js returns */
  function draw(state, seen) {
    const { part, mean } = seen.paths;
    const show = state.show;
    levels.draw(show === "kl" || show === "both" ? KL_LEVELS.map((level) => curve([1, 0], level)) : []);
    others.draw(show === "chi2" || show === "both" ? CHI2_LEVELS.map((level) => curve([0, 1], level)) : []);
    tell(show);
    const best = { part: part[1]?.probs, mean: mean[1]?.probs };
    const mix = [1, seen.lam / (2 * state.tau * state.tau)];
    const highest = best.mean ? divergence(best.mean, state.pi, mix) : 0;
    if (show === "mixed" && highest > 0) levels.draw(PARTS.map((share) => curve(mix, share * highest)));
    const by = { kl: ["part", [1, 0]], both: ["part", [1, 0]], mixed: ["mean", mix] }[show];
    for (const method of ["part", "mean"]) {
      const here = by?.[0] === method && best[method];
      const level = here ? divergence(here, state.pi, by[1]) : 0;
      set(touch[method], { d: level > 1e-6 ? curve(by[1], level) : null });
      set(sweeps[method], { d: policies(seen.sweeps[method]) });
      set(trails[method], { d: policies(seen.paths[method].map((step) => step.probs)) });
      dots(marks[method], method, seen.paths[method].slice(1));
    }
    const goal = by && best[by[0]];
    const ends = goal && rewardLine(state.r, seen.paths[by[0]][1].value);
    set(tangent, { d: ends ? policies(ends) : null });
    const [x, y] = place(toPlace(state.pi));
    set(star, { transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})` });
    set(hint, { x: x - 18, y: y - 14, "text-anchor": "end", class: seen.touched ? "ex-gone" : "ex-hint ex-rim" });
    state.r.forEach((reward, i) => {
      text(corners[i][0], `action ${i + 1}`);
      text(corners[i][1], `reward ${decimals(reward, 2)}`);
    });
    handle.refresh();

    function curve(weights, level) {
      return policies(levelLine(state.pi, weights, level));
    }

    /** The level beside each line, below the policy, where the line is in the triangle. */
    function tell(kind) {
      const [weights, values] = kind === "chi2" ? [[0, 1], CHI2_LEVELS] : [[1, 0], KL_LEVELS];
      const told = kind === "none" || kind === "mixed" ? [] : values;
      while (words.childNodes.length > told.length) words.lastChild.remove();
      while (words.childNodes.length < told.length) words.append(svg("text", { class: "ex-tick ex-rim" }));
      told.forEach((value, i) => {
        const spot = levelLine(state.pi, weights, value, 16).find((policy) => policy !== null && Math.min(...policy) > 0.02);
        const [tx, ty] = spot ? place(toPlace(spot)) : [-99, -99];
        set(words.childNodes[i], { x: tx.toFixed(1), y: (ty + 4).toFixed(1), "text-anchor": "middle" });
        text(words.childNodes[i], number(value));
      });
    }
  }

  function policies(list) {
    return line(list.map((policy) => policy && place(toPlace(policy))));
  }

  /** A mark at each iterate: squares for PMD-part, circles for PMD-mean, the last one large. */
  function dots(group, method, steps) {
    while (group.childNodes.length > steps.length) group.lastChild.remove();
    while (group.childNodes.length < steps.length) {
      group.append(svg(method === "part" ? "rect" : "circle", { class: `ex-fill ex-${method}` }));
    }
    steps.forEach(({ probs }, i) => {
      const [x, y] = place(toPlace(probs)).map((v) => Number(v.toFixed(1)));
      // the squares are wider: they show under the circles where both methods are at one place
      const r = (i === steps.length - 1 ? 7.5 : 4.5) + (method === "part" ? 1 : -1);
      const shape = { x: x - r, y: y - r, width: 2 * r, height: 2 * r };
      set(group.childNodes[i], method === "part" ? shape : { cx: x, cy: y, r });
    });
  }

  return { layout, draw };
}

/** Paths that are made once and reused in every frame. */
class Lines {
  constructor(looks) {
    this.looks = looks;
    this.node = svg("g", { "aria-hidden": "true" });
  }

  draw(list) {
    while (this.node.childNodes.length > list.length) this.node.lastChild.remove();
    while (this.node.childNodes.length < list.length) this.node.append(svg("path", { class: this.looks }));
    list.forEach((d, i) => set(this.node.childNodes[i], { d }));
  }
}

function legend() {
  const rows = [
    [svg("path", { d: starPath(8), class: "ex-star", transform: "translate(8 0)" }), "policy πₜ"],
    [svg("rect", { x: 3, y: -5, width: 10, height: 10, class: "ex-fill ex-part" }), "PMD-part"],
    [svg("circle", { cx: 8, cy: 0, r: 5.5, class: "ex-fill ex-mean" }), "PMD-mean"],
    [svg("path", { d: "M0 0H16", class: "ex-sweep ex-soft" }), "any τ"],
    [svg("path", { d: "M0 0H16", class: "ex-tangent" }), "equal reward"],
  ];
  const group = svg("g", { "aria-hidden": "true" });
  rows.forEach(([mark, words], i) => {
    group.append(svg("g", { transform: `translate(4 ${18 + 19 * i})` }, mark, svg("text", { x: 22, y: 4 }, words)));
  });
  return group;
}

function starPath(radius) {
  const tip = (k) => {
    const far = k % 2 === 0 ? radius : radius * 0.42;
    return `${(far * Math.sin((Math.PI * k) / 5)).toFixed(2)} ${(-far * Math.cos((Math.PI * k) / 5)).toFixed(2)}`;
  };
  return `M${Array.from({ length: 10 }, (_, k) => tip(k)).join("L")}Z`;
}
