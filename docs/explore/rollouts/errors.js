// The second picture of the rollout lab: squared target error against group size, exact lines and the reader's draws.

import { draggable } from "../common/controls.js";
import { axis, line, log, number, set, svg } from "../common/svg.js";
import { targetError } from "../math/targets.js";

export const NS = [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
const LINE = [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 18, 20, 23, 26, 29, 32, 37, 43, 49, 56, 64, 75, 87, 102, 128,
  152, 181, 215, 256, 304, 362, 430, 512, 609, 724, 861, 1024];
const METHODS = [["part", "pmd-part"], ["mean", "pmd-mean"]];

/** Pixels of the stage. */
export const errorsHeight = () => 290;

/**
 * @param {{state: Object, change: (part: Object) => void}} lab
 * @returns {{layout: Function, draw: Function}}
 */
export function errors(lab) {
  const looks = (method) => ({
    curve: svg("path", { class: `ex-stroke ex-${method}` }),
    points: svg("g", { "data-points": method }),
    name: svg("text", { class: `ex-${method} ex-rim` }, method === "part" ? "PMD-part" : "PMD-mean"),
  });
  const drawn = { part: looks("part"), mean: looks("mean") };
  const cut = svg("path", { class: "ex-now" });
  const grip = svg("g", {}, svg("circle", { r: 22, class: "ex-hit" }), svg("circle", { r: 13, class: "ex-ring" }),
    svg("circle", { r: 8, class: "ex-knob" }));
  let box = { left: 0, right: 1, top: 0, bottom: 1 };
  let across = log([2, 1024], [0, 1]);
  let up = log([0.1, 1], [1, 0]);
  let frame = null;
  let framed = "";
  let curves = { key: "", part: [], mean: [] };

  const handle = draggable(grip, {
    label: "responses per prompt n",
    min: 2,
    max: 1024,
    now: () => lab.state.n,
    describe: () => `${lab.state.n} responses per prompt`,
    at: () => [across(lab.state.n), box.bottom],
    move: (x) => lab.change({ n: Math.round(across.invert(x)) }),
    nudge: (dx, dy) => lab.change({ n: lab.state.n + dx + dy }),
    jump: (toMax) => lab.change({ n: toMax ? 1024 : 2 }),
  });

  function layout(node, width, height) {
    box = { left: 52, right: width - 14, top: 28, bottom: height - 46 };
    across = log([2, 1024], [box.left, box.right]);
    framed = "";
    if (cut.parentNode === null) {
      node.append(cut);
      for (const { curve, points, name } of Object.values(drawn)) node.append(curve, points, name);
      node.append(grip);
    }
  }

  /** @param {Map<number, {groups: number, part: Object, mean: Object}>} tallies of the drawn groups, by n */
  function draw({ p, n, tau }, tallies) {
    const key = `${p} ${tau}`;
    if (curves.key !== key) {
      curves = { key };
      for (const [short, method] of METHODS) curves[short] = LINE.map((size) => targetError(p, size, tau, method).mean);
    }
    const all = [...curves.part, ...curves.mean];
    const low = Math.max(10 ** Math.floor(Math.log10(Math.min(...all) / 2)), 1e-6);
    const high = 10 ** Math.ceil(Math.log10(Math.max(...all) * 1.5));
    if (framed !== `${low} ${high}`) {
      framed = `${low} ${high}`;
      up = log([low, high], [box.bottom, box.top]);
      const fresh = svg("g", {}, axis("left", up, box, { count: 5, label: "mean squared target error (nats²)" }),
        axis("bottom", across, box, { ticks: NS, grid: false, format: String, label: "responses per prompt n" }));
      if (frame) frame.replaceWith(fresh);
      else cut.before(fresh);
      frame = fresh;
    }
    set(cut, { d: line([[across(n), box.top], [across(n), box.bottom]]) });
    set(grip, { transform: `translate(${across(n).toFixed(1)} ${box.bottom})` });
    handle.refresh();
    for (const [short] of METHODS) {
      const { curve, points, name } = drawn[short];
      set(curve, { d: line(LINE.map((size, i) => [across(size), up(Math.max(curves[short][i], low))])) });
      marks(points, short, tallies, low, high);
      const other = curves[short === "part" ? "mean" : "part"];
      const above = curves[short][1] >= other[1];
      set(name, { x: box.left + 8, y: up(Math.max(curves[short][1], low)) + (above ? -9 : 19) });
    }
  }

  /** A point with an interval of two standard errors for each n of which groups were drawn. */
  function marks(group, method, tallies, low, high) {
    const list = [...tallies].filter(([, { groups }]) => groups > 0);
    while (group.childNodes.length > list.length) group.lastChild.remove();
    while (group.childNodes.length < list.length) {
      const shape = svg(method === "part" ? "rect" : "circle", { class: `ex-fill ex-${method}` });
      group.append(svg("g", {}, svg("path", { class: `ex-whisker ex-${method}` }), shape));
    }
    list.forEach(([size, { groups, [method]: { sum, squares } }], i) => {
      const mean = sum / groups;
      const error = groups > 1 ? 2 * Math.sqrt(Math.max(squares / groups - mean * mean, 0) / (groups - 1)) : 0;
      const clip = (value) => up(Math.min(high, Math.max(low, value)));
      const x = across(size);
      const y = clip(mean);
      const [whisker, shape] = group.childNodes[i].childNodes;
      set(group.childNodes[i], { "data-n": size, "data-groups": groups, "data-mean": mean });
      set(whisker, { d: line([[x, clip(mean - error)], [x, clip(mean + error)]]) });
      const square = { x: (x - 4.5).toFixed(1), y: (y - 4.5).toFixed(1), width: 9, height: 9 };
      set(shape, method === "part" ? square : { cx: x.toFixed(1), cy: y.toFixed(1), r: 5 });
    });
  }

  return { layout, draw };
}

/** Words for a share of groups: "44 %". */
export const percent = (share) => `${number(100 * share, 2)} %`;
