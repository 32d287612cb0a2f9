// The small pictures of the simplex explorer: three rewards to drag, and the expected reward step by step.

import { draggable } from "../common/controls.js";
import { axis, decimals, line, linear, set, svg, text } from "../common/svg.js";

const ROW = 34; // pixels per reward

/** Pixels of the stage of the rewards. */
export const rewardsHeight = () => 3 * ROW + 6;

/**
 * Three tracks from 0 to 1 with a handle each.
 * @param {{state: {r: number[]}, change: (part: Object) => void}} explorer
 */
export function rewards(explorer) {
  let scale = linear([0, 1], [0, 1]);
  const rows = [0, 1, 2].map((i) => {
    const y = ROW * (i + 0.5);
    const to = (value) => {
      const r = [...explorer.state.r];
      r[i] = Math.min(1, Math.max(0, Math.round(value * 100) / 100));
      explorer.change({ r });
    };
    const grip = svg("g", { "data-key": `reward-${i + 1}` }, svg("circle", { r: 17, class: "ex-hit" }),
      svg("circle", { r: 12, class: "ex-ring" }), svg("circle", { r: 7.5, class: "ex-grip" }));
    const handle = draggable(grip, {
      label: `reward of action ${i + 1}`,
      min: 0,
      max: 1,
      now: () => explorer.state.r[i],
      describe: () => decimals(explorer.state.r[i], 2),
      at: () => [scale(explorer.state.r[i]), y],
      move: (x) => to(scale.invert(x)),
      nudge: (dx, dy) => to(explorer.state.r[i] + 0.01 * (dx + dy)),
      jump: (toMax) => to(toMax ? 1 : 0),
    });
    return { y, grip, handle, rail: svg("path", { class: "ex-rail" }), bar: svg("path", { class: "ex-bar" }),
      name: svg("text", { x: 0, y: y + 4 }, `reward ${i + 1}`), value: svg("text", { y: y + 4, "text-anchor": "end" }) };
  });

  function layout(node, width) {
    scale = linear([0, 1], [78, width - 56]);
    for (const { y, rail, bar, name, value, grip } of rows) {
      set(rail, { d: line([[scale(0), y], [scale(1), y]]) });
      set(value, { x: width - 2 });
      if (rail.parentNode === null) node.append(rail, bar, name, value, grip);
    }
  }

  function draw(state) {
    rows.forEach(({ y, bar, value, grip, handle }, i) => {
      const x = scale(state.r[i]);
      set(bar, { d: line([[scale(0), y], [x, y]]) });
      set(grip, { transform: `translate(${x.toFixed(1)} ${y})` });
      text(value, decimals(state.r[i], 2));
      handle.refresh();
    });
  }

  return { layout, draw };
}

/** Expected reward against the number of steps, both methods. */
export function values(last) {
  const lines = { part: svg("path", { class: "ex-stroke ex-part" }), mean: svg("path", { class: "ex-stroke ex-mean" }) };
  const marks = { part: svg("g", {}), mean: svg("g", {}) };
  let frame = svg("g", {});
  let across = linear([0, last], [0, 1]);
  let up = linear([0, 1], [1, 0]);

  function layout(node, width, height) {
    const box = { left: 34, right: width - 10, top: 24, bottom: height - 40 };
    across = linear([0, last], [box.left, box.right]);
    up = linear([0, 1], [box.bottom, box.top]);
    frame.remove();
    frame = svg("g", {}, axis("left", up, box, { ticks: [0, 0.5, 1], label: "expected reward J" }),
      axis("bottom", across, box, { ticks: [0, 3, 6, 9, 12], grid: false, label: "steps" }));
    node.prepend(frame);
    if (lines.part.parentNode === null) node.append(lines.part, lines.mean, marks.part, marks.mean);
  }

  function draw(paths) {
    for (const method of ["part", "mean"]) {
      const points = paths[method].map(({ value }, k) => [across(k), up(value)]);
      set(lines[method], { d: line(points) });
      const group = marks[method];
      while (group.childNodes.length > points.length) group.lastChild.remove();
      while (group.childNodes.length < points.length) {
        group.append(svg(method === "part" ? "rect" : "circle", { class: `ex-fill ex-${method}` }));
      }
      points.forEach(([x, y], k) => {
        const shape = { x: (x - 4).toFixed(1), y: (y - 4).toFixed(1), width: 8, height: 8 };
        set(group.childNodes[k], method === "part" ? shape : { cx: x.toFixed(1), cy: y.toFixed(1), r: 4.5 });
      });
    }
  }

  return { layout, draw };
}
