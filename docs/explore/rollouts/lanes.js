// The first picture of the rollout lab: one group's responses, and the targets they give, beside the true log ratios.

import { draggable } from "../common/controls.js";
import { axis, decimals, line, linear, set, svg, text } from "../common/svg.js";

const STRIP = 58; // pixels of the group's own row
const LANE = 118; // pixels of a method
const METHODS = [["part", "PMD-part"], ["mean", "PMD-mean"]];
const SIDES = [["right", -1], ["wrong", 1]]; // right responses above the line, wrong ones below

export const lanesHeight = () => STRIP + 2 * LANE + 52; // pixels of the stage

/** @param {{state: Object, change: (part: Object) => void}} lab @returns {{layout: Function, draw: Function}} */
export function lanes(lab) {
  const dots = svg("g", {});
  const counts = { right: svg("text", { class: "ex-right" }), wrong: svg("text", { class: "ex-wrong", "text-anchor": "end" }) };
  const grip = svg("g", {}, svg("rect", { x: -22, y: -22, width: 44, height: 44, class: "ex-hit" }),
    svg("rect", { x: -7, y: -19, width: 14, height: 38, rx: 7, class: "ex-ring" }),
    svg("rect", { x: -3.5, y: -15, width: 7, height: 30, rx: 3.5, class: "ex-cut" }));
  let across = linear([0, 1], [0, 1]); // share of the group to pixels
  let plot = { left: 0, right: 1, top: 0, bottom: 1 };
  let frame = null;
  let framed = NaN;
  let width = 0;
  const rows = METHODS.map(([method, name], i) => lane(method, name, STRIP + LANE * (i + 0.5) + 6));

  const handle = draggable(grip, {
    label: "right responses in the group",
    min: 0,
    get max() {
      return lab.state.n;
    },
    now: () => lab.state.s,
    describe: () => `${lab.state.s} of ${lab.state.n} right`,
    at: () => [across(lab.state.s / lab.state.n), 30],
    move: (x) => lab.change({ s: Math.round(across.invert(x) * lab.state.n) }),
    nudge: (dx, dy) => lab.change({ s: lab.state.s + dx + dy }),
    jump: (toMax) => lab.change({ s: toMax ? lab.state.n : 0 }),
  });

  function layout(node, wide) {
    width = wide;
    across = linear([0, 1], [6, width - 6]);
    plot = { left: 6, right: width - 6, top: STRIP + 4, bottom: STRIP + 2 * LANE + 10 };
    framed = NaN;
    set(counts.right, { x: 6, y: 10 });
    set(counts.wrong, { x: width - 6, y: 10 });
    if (dots.parentNode === null) {
      node.append(dots, counts.right, counts.wrong, ...rows.map((row) => row.node), grip);
    }
  }

  /** @param {Object} seen what `solve` in main.js returns */
  function draw(state, seen) {
    const reach = 1.12 / state.tau;
    if (framed !== reach) {
      framed = reach;
      const scale = linear([-reach, reach], [plot.left, plot.right]);
      const fresh = axis("bottom", scale, plot, { count: width > 500 ? 9 : 5, label: "target log ratio (nats)" });
      if (frame) frame.replaceWith(fresh);
      else dots.before(fresh);
      frame = fresh;
      for (const row of rows) row.fit(scale);
    }
    group(state);
    for (const row of rows) row.draw(state, seen[row.method]);
    set(grip, { transform: `translate(${across(state.s / state.n).toFixed(1)} 30)`, "aria-valuemax": state.n });
    handle.refresh();
  }

  /** The responses, right ones first: filled and hollow, so that colour is not needed. */
  function group({ n, s }) {
    const shown = n <= 64 ? n : 64; // above, each mark stands for several responses
    while (dots.childNodes.length > shown) dots.lastChild.remove();
    while (dots.childNodes.length < shown) dots.append(svg("circle", {}));
    const room = (width - 12) / shown;
    const r = Math.max(1.2, Math.min(9, room * 0.42)).toFixed(2);
    dots.childNodes.forEach((dot, i) => {
      const right = ((i + 0.5) / shown) * n < s;
      set(dot, { cx: (6 + room * (i + 0.5)).toFixed(1), cy: 30, r, class: right ? "ex-fill ex-right" : "ex-hollow ex-wrong" });
    });
    text(counts.right, `${s} right`);
    text(counts.wrong, `${n - s} wrong`);
  }

  return { layout, draw };

  function lane(method, name, y) {
    const side = (reward, sign) => ({
      exact: svg("path", { class: `ex-stems ex-${reward}` }),
      truth: svg("path", { class: `ex-truth ex-${reward}` }),
      miss: svg("path", { class: `ex-miss ex-${reward}` }),
      dot: svg("circle", { class: `ex-fill ex-${reward}` }),
      told: svg("text", { class: `ex-${reward} ex-rim`, "text-anchor": "middle" }),
      reward, sign,
    });
    const sides = SIDES.map(([reward, sign]) => side(reward, sign));
    const base = svg("path", { class: "ex-edge" });
    const title = svg("text", { class: `ex-${method} ex-rim ex-title`, y: y - 44, x: plot.left + 8 }, name);
    const node = svg("g", {}, base, ...sides.flatMap((s) => [s.exact, s.miss, s.truth, s.dot, s.told]), title);
    let scale = linear([0, 1], [0, 1]);

    function fit(fresh) {
      scale = fresh;
      set(base, { d: line([[plot.left, y], [plot.right, y]]) });
    }

    function draw({ n, s }, seen) {
      for (const { exact, truth, miss, dot, told, reward, sign } of sides) {
        const count = reward === "right" ? s : n - s;
        const goal = scale(seen.truth[reward]);
        const here = scale(seen.target[reward]);
        const far = y + 21 * sign;
        set(exact, { d: stems(seen.exact[reward], sign) });
        set(truth, { d: `M${goal.toFixed(1)} ${y}V${y + 40 * sign}` });
        set(miss, { d: count > 0 ? line([[here, far], [goal, far]]) : null });
        const r = count > 0 ? 4 + 6 * Math.sqrt(count / n) : 0;
        set(dot, { cx: count > 0 ? here.toFixed(1) : 0, cy: far, r: r.toFixed(1) });
        const x = Math.min(plot.right - 40, Math.max(plot.left + 40, goal));
        set(told, { x: x.toFixed(1), y: y + (sign < 0 ? -43 : 52) });
        text(told, `truth ${decimals(seen.truth[reward], 1)}`);
      }
    }

    /** Bars of probability: as high as 36 pixels for all of it. */
    function stems(list, sign) {
      let d = "";
      for (const [value, share] of list) {
        if (share > 0.002) d += `M${scale(value).toFixed(1)} ${y}v${(36 * share * sign).toFixed(1)}`;
      }
      return d || null;
    }

    return { method, node, fit, draw };
  }
}
