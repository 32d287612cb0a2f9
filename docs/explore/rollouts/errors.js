// The second picture of the rollout lab: squared target error against group size, exact lines and the reader's draws.

import { axis, line, log, number, set, svg } from "../common/svg.js";
import { targetError } from "../math/targets.js";

export const NS = [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
const LINE = [...new Set(Array.from({ length: 55 }, (_, i) => Math.round(2 * 512 ** (i / 54))))];
export const METHODS = [["part", "pmd-part"], ["mean", "pmd-mean"]];

export const errorsHeight = () => 290; // pixels of the stage

/** @returns {{layout: Function, draw: Function}} */
export function errors() {
  const looks = (method) => ({
    curve: svg("path", { class: `ex-stroke ex-${method}` }),
    points: svg("g", { "data-points": method }),
    name: svg("text", { class: `ex-${method} ex-rim` }, method === "part" ? "PMD-part" : "PMD-mean"),
  });
  const drawn = { part: looks("part"), mean: looks("mean") };
  const cut = svg("path", { class: "ex-now" });
  let box = { left: 0, right: 1, top: 0, bottom: 1 };
  let across = log([2, 1024], [0, 1]);
  let up = log([0.1, 1], [1, 0]);
  let frame = null;
  let framed = "";
  let curves = { key: "", part: [], mean: [] };

  function layout(node, width, height) {
    box = { left: 52, right: width - 14, top: 28, bottom: height - 46 };
    across = log([2, 1024], [box.left, box.right]);
    framed = "";
    if (cut.parentNode === null) {
      node.append(cut);
      for (const { curve, points, name } of Object.values(drawn)) node.append(curve, points, name);
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
      set(whisker, { d: line([[x, clip(mean - error)], [x, clip(mean + error)]]) });
      const square = { x: (x - 4.5).toFixed(1), y: (y - 4.5).toFixed(1), width: 9, height: 9 };
      set(shape, method === "part" ? square : { cx: x.toFixed(1), cy: y.toFixed(1), r: 5 });
    });
  }

  return { layout, draw };
}

/** Words for a share of groups: "44 %". */
export const percent = (share) => `${number(100 * share, 2)} %`;
