// The picture of the loss landscape: loss and push against the log-ratio, ends of pushes, and the probe that is dragged.

import { draggable } from "../common/controls.js";
import { axis, decimals, line, linear, number, set, svg } from "../common/svg.js";

const STEPS = 320; // points of a curve
const GAP = 62; // pixels between the panels, for the axis of the upper one
const HEAD = 30;
const FOOT = 74; // axis, and the handle of the probe under it

/** Pixels of the stage. */
export const heightFor = (width) => (width < 480 ? 500 : 560);

/**
 * Two panels over one axis of log-ratios.
 * @param {{state: Object, change: (part: Object) => void}} explorer
 * @param {Object<string, {colour: string, dash: number[], title: string}>} looks by objective
 */
export function landscape(explorer, looks) {
  let size = [600, 560];
  let panels = [];
  let across = linear([-1, 1], [0, 1]);
  let framed = "";
  const frame = svg("g", {});
  const clips = svg("defs", {}); // one for each panel: a curve that leaves one must not come back in the other
  const curves = svg("g", {});
  const marks = svg("g", {});
  const probe = svg("path", { class: "lo-probe" });
  const dots = svg("g", {});
  const grip = svg("g", { "data-key": "probe" }, svg("circle", { r: 19, class: "ex-hit" }),
    svg("circle", { r: 13, class: "ex-ring" }), svg("circle", { r: 8, class: "lo-grip" }));
  const to = (s) => explorer.change({ s });
  const handle = draggable(grip, {
    label: "log-ratio that is looked at, nats",
    min: -50,
    max: 50,
    now: () => explorer.state.s,
    describe: () => `${decimals(explorer.state.s, 3)} nats, ratio ${number(Math.exp(explorer.state.s))}`,
    at: () => [across(explorer.state.s), size[1] - 16],
    move: (x) => to(across.invert(x)),
    nudge: (dx, dy) => to(explorer.state.s + ((dx + dy) * explorer.state.range) / 60),
    jump: (toMax) => to(toMax ? explorer.state.range : -explorer.state.range),
  });

  function layout(node, width, height) {
    size = [width, height];
    framed = "";
    if (frame.parentNode === null) node.append(clips, frame, probe, curves, marks, dots, grip);
  }

  /** @param {Array<{name: string, view: Object}>} seen the objectives that are on */
  function draw(state, seen) {
    const limits = seen.length ? extents(state.range, seen) : { loss: [-1, 1], push: [-1, 1] };
    frameFor(state.range, limits);
    const xs = samples(state.range, seen);
    curves.replaceChildren(...seen.flatMap(({ name, view }) => panels.map(({ key, scale }) => curve(name, key, scale, view, xs))));
    marks.replaceChildren(...ends(state.range, seen));
    const x = across(state.s);
    set(probe, { d: panels.map(({ box }) => line([[x, box.top], [x, box.bottom]])).join("") });
    dots.replaceChildren(...seen.flatMap(({ name, view }) => panels.map(({ key, scale }) => svg("circle", {
      cx: x, cy: scale(view[key](state.s)), r: 4, class: "lo-dot", "clip-path": `url(#lo-clip-${key})`, style: paint(name),
    }))));
    set(grip, { transform: `translate(${x.toFixed(1)} ${size[1] - 16})` });
    handle.refresh();
  }

  function frameFor(range, limits) {
    const key = [size, range, limits.loss, limits.push].join();
    if (key === framed) return;
    framed = key;
    const [width, height] = size;
    const each = (height - HEAD - GAP - FOOT) / 2;
    const left = 46;
    across = linear([-range, range], [left, width - 10]);
    panels = ["loss", "push"].map((name, i) => {
      const top = HEAD + i * (each + GAP);
      const box = { left, right: width - 10, top, bottom: top + each };
      return { key: name, box, scale: linear(limits[name], [box.bottom, box.top]) };
    });
    const words = { loss: "loss of the response, less its value at 0", push: "push: −∂loss / ∂log π, above 0 raises it" };
    clips.replaceChildren(...panels.map(({ key: name, box }) => svg("clipPath", { id: `lo-clip-${name}` }, svg("rect", {
      x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top,
    }))));
    frame.replaceChildren(...panels.flatMap(({ key: name, box, scale }) => [
      axis("left", scale, box, { count: 5, label: words[name] }),
      axis("bottom", across, box, { count: width < 480 ? 5 : 7, label: name === "push" ? "log-ratio log π/π_old of the response (nats)" : "" }),
      svg("line", { x1: box.left, x2: box.right, y1: scale(0), y2: scale(0), class: "lo-zero" }),
      svg("line", { x1: across(0), x2: across(0), y1: box.top, y2: box.bottom, class: "lo-zero" }),
      svg("text", { x: across(0) + 5, y: box.bottom - 6, class: "ex-quiet ex-rim" }, "π_old"),
    ]));
  }

  function curve(name, key, scale, view, xs) {
    const points = xs.map((s) => [across(s), scale(clamp(view[key](s), scale.domain))]);
    const dash = looks[name].dash.map((length) => 1.8 * length).join(" ");
    return svg("path", {
      d: line(points), class: "ex-stroke lo-curve", style: paint(name), "stroke-dasharray": dash || null,
      "clip-path": `url(#lo-clip-${key})`, "data-curve": `${name}/${key}`,
    });
  }

  /** A ring where a push ends and turns round, a band where it is silent. */
  function ends(range, seen) {
    const [loss, push] = panels;
    const found = [];
    let bands = 0;
    for (const { name, view } of seen) {
      if (view.rest !== null && Math.abs(view.rest) <= range) {
        for (const { key, scale } of [loss, push]) {
          const y = scale(key === "push" ? 0 : clamp(view.loss(view.rest), scale.domain));
          found.push(svg("circle", { cx: across(view.rest), cy: y, r: 6.5, class: "lo-rest", style: paint(name) }));
        }
      }
      if (view.silent !== null) {
        const [from, to] = view.silent.map((s) => across(within(s, [-range, range])));
        if (to - from < 1) continue;
        const y = push.scale(0) + 6 + 7 * bands;
        bands += 1;
        found.push(svg("line", { x1: from, x2: to, y1: y, y2: y, class: "lo-silent", style: paint(name) }));
        if (bands === 1) {
          const far = view.silent[1] === Infinity;
          const place = far ? { x: to, "text-anchor": "end" } : { x: from };
          found.push(svg("text", { ...place, y: push.scale(0) - 7, class: "ex-quiet ex-rim" }, "silent"));
        }
      }
    }
    return found;
  }

  const paint = (name) => `--lo: var(--lo-${looks[name].colour.slice(1)})`;

  return { layout, draw };
}

/** Log-ratios to draw at: evenly, and on both sides of every jump, so that it is upright. */
function samples(range, seen) {
  const xs = Array.from({ length: STEPS + 1 }, (_, i) => -range + (2 * range * i) / STEPS);
  for (const { view } of seen) {
    for (const edge of view.silent ?? []) {
      if (Math.abs(edge) < range) xs.push(edge - 1e-9 * Math.max(1, Math.abs(edge)), edge + 1e-9 * Math.max(1, Math.abs(edge)));
    }
  }
  return xs.sort((a, b) => a - b);
}

/** Limits of both panels: all of every curve, but no more than twice the first push and what it would lead to. */
function extents(range, seen) {
  const first = Math.max(...seen.map(({ view }) => Math.abs(view.push(0)))) || 1;
  const bound = { loss: [-first * range, first * range], push: [-2 * first, 2 * first] };
  const found = {};
  for (const key of ["loss", "push"]) {
    let [low, high] = [0, 0];
    for (const { view } of seen) {
      for (let i = 0; i <= 40; i += 1) {
        const value = within(view[key](-range + (range * i) / 20), bound[key]);
        low = Math.min(low, value);
        high = Math.max(high, value);
      }
    }
    const room = 0.08 * (high - low) || 1;
    found[key] = [low - room, high + room];
  }
  return found;
}

const within = (value, [low, high]) => Math.min(high, Math.max(low, value));

/** Within the limits and a little beyond: the clip hides the rest, and no number is too large for a path. */
function clamp(value, [low, high]) {
  return within(value, [2 * low - high, 2 * high - low]);
}
