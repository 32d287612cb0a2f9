// The picture of the anchor law: push and pull against tau above, what M ministeps make of a drift below, one handle.

import { draggable } from "../common/controls.js";
import { axis, line, linear, log, number, set, svg } from "../common/svg.js";
import { anchor, growth } from "../math/anchor.js";

const POINTS = 90;
const HEAD = 30;
const GAP = 64; // pixels between the panels, for the axis of the upper one
const FOOT = 76; // axis, and the handle under it

/** Pixels of the stage. */
export const heightFor = (width) => (width < 480 ? 440 : 480);

/**
 * @param {{state: Object, change: (part: Object) => void}} explorer
 * @param {[number, number]} limits of tau
 */
export function panels(explorer, limits) {
  const frame = svg("g", {});
  const curves = svg("g", {});
  const cut = svg("path", { class: "an-cut" });
  const grip = svg("g", { "data-key": "tau-handle" }, svg("circle", { r: 19, class: "ex-hit" }), svg("circle", { r: 13, class: "ex-ring" }),
    svg("circle", { r: 8, class: "an-grip" }));
  let size = [600, 480];
  let across = log(limits, [0, 1]);
  const to = (tau) => explorer.change({ tau });
  const handle = draggable(grip, {
    label: "temperature τ",
    min: limits[0],
    max: limits[1],
    now: () => explorer.state.tau,
    describe: () => `τ ${number(explorer.state.tau)}`,
    at: () => [across(explorer.state.tau), size[1] - 16],
    move: (x) => to(Number(across.invert(x).toPrecision(3))),
    nudge: (dx, dy) => to(explorer.state.tau * 1.05 ** (dx + dy)),
    jump: (toMax) => to(limits[toMax ? 1 : 0]),
  });

  function layout(node, width, height) {
    size = [width, height];
    if (frame.parentNode === null) node.append(frame, cut, curves, grip);
  }

  function draw({ tau, n, M, p, rate }, threshold) {
    const [width, height] = size;
    const each = (height - HEAD - GAP - FOOT) / 2;
    const [upper, lower] = [0, 1].map((i) => {
      const top = HEAD + i * (each + GAP);
      return { left: 50, right: width - 12, top, bottom: top + each };
    });
    across = log(limits, [upper.left, upper.right]);
    const taus = Array.from({ length: POINTS + 1 }, (_, k) => limits[0] * (limits[1] / limits[0]) ** (k / POINTS));
    const c = { part: taus.map((each) => anchor(p, each, n)), mean: taus.map(() => 0) };
    const strength = linear([0, 1], [upper.bottom, upper.top]);
    const factors = Object.fromEntries(Object.entries(c).map(([method, push]) =>
      [method, push.map((value, i) => growth(value, taus[i], rate, M))]));
    const top = 10 ** Math.ceil(Math.log10(Math.max(2, ...factors.part)));
    const multiple = log([1e-2, top], [lower.bottom, lower.top]);
    const path = (values, scale, low, high, look) => svg("path", { class: `ex-stroke ${look}`, "data-curve": look,
      d: line(taus.map((each, i) => (values[i] < low || values[i] > high ? null : [across(each), scale(values[i])]))) });
    const note = (x, y, words, look = "ex-quiet", anchored = "start") =>
      svg("text", { x, y, class: `${look} ex-rim`, "text-anchor": anchored }, words);
    const edge = threshold > limits[0] ? across(threshold) : null;
    frame.replaceChildren(
      ...(edge === null ? [] : [upper, lower].map((box) => svg("rect", { class: "an-away", x: box.left, y: box.top,
        width: Math.max(0, edge - box.left), height: box.bottom - box.top }))),
      axis("left", strength, upper, { count: 4, label: "strength (reward units)" }),
      axis("bottom", across, upper, { count: width < 480 ? 4 : 6, grid: false }),
      axis("left", multiple, lower, { count: 4, label: `what ${M} ministep${M === 1 ? "" : "s"} make of a drift (factor)` }),
      axis("bottom", across, lower, { count: width < 480 ? 4 : 6, grid: false, label: "temperature τ (rewards 0 and 1)" }),
      svg("line", { x1: lower.left, x2: lower.right, y1: multiple(1), y2: multiple(1), class: "an-one" }),
    );
    curves.replaceChildren(
      path(taus, strength, 0, 1, "an-pull"),
      path(c.part, strength, 0, 1, "ex-part"),
      path(factors.mean, multiple, 1e-2, top, "ex-mean"),
      path(factors.part, multiple, 1e-2, top, "ex-part"),
      note(upper.left + 6, strength(c.part[0]) + (c.part[0] > 0.85 ? 16 : -7), "push of PMD-part, c", "ex-part"),
      note(across(0.7) - 6, strength(0.7), "pull, τ", "ex-quiet", "end"),
      ...(edge === null || edge - upper.left < 60 ? [] : [note(edge - 5, upper.bottom - 8, "pushed away", "ex-quiet", "end")]),
    );
    const x = across(tau);
    set(cut, { d: [upper, lower].map((box) => line([[x, box.top], [x, box.bottom]])).join("") });
    set(grip, { transform: `translate(${x.toFixed(1)} ${height - 16})` });
    handle.refresh();
  }

  return { layout, draw };
}
