// Questions of a lesson that are answered by drawing: the end of a path in the triangle, the share of the gap that one
// step closes. The answer is computed here, and shows after the guess. javascripts/predict.js keeps the guess.

import { draggable } from "../common/controls.js";
import { stage } from "../common/figure.js";
import { axis, decimals, html, line, linear, log, number, set, svg, text } from "../common/svg.js";
import { HEIGHT, toPlace, toPolicy } from "../math/geometry.js";
import { binary, pmdMean } from "../math/pmd.js";

const TAUS = Array.from({ length: 61 }, (_, i) => 100 * (0.001 / 100) ** (i / 60)); // of the path, reward units
const CORNERS = [[1, 0, 0], [0, 1, 0], [0, 0, 1]];
const RATES = Array.from({ length: 9 }, (_, i) => 1e-4 * 5000 ** (i / 8)); // pass rates where a curve is drawn, up to 0.5
const FINE = Array.from({ length: 81 }, (_, i) => 1e-4 * 5000 ** (i / 80));

const widgets = { path, curve };
for (const form of document.querySelectorAll("form.predict[data-draw]")) build(form);

function build(form) {
  const widget = widgets[form.dataset.draw](form, form.querySelector(".predict-stage"));
  const said = html("p", { class: "predict-said", role: "status" });
  form.querySelector(".predict-stage").append(said);
  const told = () => {
    if (form.dataset.answered) widget.set(form.dataset.answered.split(" ").map(Number));
    widget.tell();
    text(said, form.dataset.answered ? widget.say() : "");
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    form.dispatchEvent(new CustomEvent("predict-guess", { detail: widget.guess() }));
  });
  form.addEventListener("predict-told", told);
  if (form.classList.contains("predict-told")) told();
  set(form, { "data-ready": "true" });
}

/** Where the path of PMD-mean ends as tau goes to 0: a point of the triangle to drag. */
function path(form, parent) {
  const [pi, reward] = [form.dataset.pi, form.dataset.reward].map((row) => row.split(" ").map(Number));
  const right = TAUS.map((tau) => pmdMean(pi, reward, tau).probs);
  const end = right.at(-1);
  let guess = pi;
  let open = true;
  let place = ([x, y]) => [x, y];
  let back = place;
  const frame = svg("path", { class: "ex-frame" });
  const way = svg("path", { class: "predict-way" });
  const truth = svg("path", { class: "ex-stroke ex-mean" });
  const goal = svg("circle", { r: 6, class: "ex-fill ex-mean", visibility: "hidden" });
  const start = svg("circle", { r: 5, class: "predict-start" });
  const point = svg("g", {}, svg("circle", { r: 22, class: "ex-hit" }), svg("circle", { r: 13, class: "ex-ring" }),
    svg("circle", { r: 7, class: "predict-point" }));
  const hint = svg("text", { class: "ex-quiet", "aria-hidden": "true", "text-anchor": "middle" }, "drag this");
  const corners = CORNERS.map((_, i) => [svg("text", {}, `action ${i + 1}`),
    svg("text", { class: "ex-quiet" }, `reward ${reward[i]}`)]);
  const handle = draggable(point, {
    label: "end of the path: left and right move towards action 1 and 2, up towards action 3", min: 0, max: 1,
    now: () => guess[2],
    describe: () => guess.map((p, i) => `action ${i + 1}: ${decimals(p, 2)}`).join(", "),
    at: () => place(toPlace(guess)),
    move: (x, y) => change(toPolicy(back([x, y]))),
    nudge: (dx, dy) => {
      const [x, y] = toPlace(guess);
      change(toPolicy([x + dx * 0.02, y + dy * 0.02]));
    },
  });

  stage(parent, "Triangle of policies over three actions", (width) => side(width) * HEIGHT + 86, (node, width) => {
    const wide = side(width);
    const left = (width - wide) / 2;
    const bottom = wide * HEIGHT + 42;
    place = ([x, y]) => [left + x * wide, bottom - y * wide];
    back = ([x, y]) => [(x - left) / wide, (bottom - y) / wide];
    set(frame, { d: line([...CORNERS, CORNERS[0]].map(toPlace).map(place)) });
    CORNERS.forEach((corner, i) => {
      const [x, y] = place(toPlace(corner));
      const at = { x: x + [-28, 28, 0][i], "text-anchor": ["start", "end", "middle"][i] };
      set(corners[i][0], { ...at, y: y + (i === 2 ? -28 : 18) });
      set(corners[i][1], { ...at, y: y + (i === 2 ? -13 : 33) });
    });
    if (frame.parentNode === null) node.append(frame, truth, way, start, goal, hint, point, ...corners.flat());
    draw();
  });

  function change(next) {
    if (!open) return;
    guess = next;
    set(hint, { visibility: "hidden" });
    draw();
  }

  function draw() {
    const from = place(toPlace(pi));
    const to = place(toPlace(guess));
    set(way, { d: line([from, to]) });
    set(start, { cx: from[0], cy: from[1] });
    set(hint, { x: from[0], y: from[1] + 28 });
    set(point, { transform: `translate(${to[0].toFixed(1)} ${to[1].toFixed(1)})` });
    handle.refresh();
    if (open) return;
    const [x, y] = place(toPlace(end));
    set(truth, { d: line(right.map(toPlace).map(place)) });
    set(goal, { cx: x, cy: y, visibility: null });
  }

  return {
    guess: () => guess.map((p) => decimals(p, 4)).join(" "),
    set: (numbers) => change(numbers),
    tell() {
      open = false;
      set(hint, { visibility: "hidden" });
      set(point, { tabindex: null, "aria-disabled": "true" });
      draw();
    },
    say: () => `Your guess: ${guess.map((p) => decimals(p, 2)).join(", ")}. `
      + `The path ends at ${end.map((p) => decimals(p, 2)).join(", ")}.`,
  };
}

function side(width) {
  return Math.min(width - 70, 380);
}

/** The share of the gap that one exact step of PMD-mean closes, by pass rate: a curve to draw. */
function curve(form, parent) {
  const tau = Number(form.dataset.tau);
  const share = (p) => -Math.expm1(binary(p, tau, "pmd-mean").wrong);
  let heights = RATES.map(() => 0.5);
  let open = true;
  let [x, y] = [null, null];
  let last = null; // column under the pointer, while it is down
  const drawn = svg("path", { class: "predict-line" });
  const truth = svg("path", { class: "ex-stroke ex-mean" });
  const ground = svg("rect", { class: "predict-ground" });
  const hint = svg("text", { class: "ex-quiet", "aria-hidden": "true", "text-anchor": "middle" }, "draw here");
  const points = RATES.map((p, i) => {
    const point = svg("circle", { r: 6, class: "predict-point", tabindex: 0, role: "slider", "aria-valuemin": 0,
      "aria-valuemax": 1, "aria-label": `share closed at a pass rate of ${number(p, 1)}` });
    point.addEventListener("keydown", (event) => {
      const step = { ArrowUp: 0.02, ArrowRight: 0.02, ArrowDown: -0.02, ArrowLeft: -0.02 }[event.key];
      if (step) change(i, heights[i] + step * (event.shiftKey ? 5 : 1));
      else if (event.key === "Home" || event.key === "End") change(i, event.key === "End" ? 1 : 0);
      else return;
      event.preventDefault();
    });
    return point;
  });

  const place = (event) => {
    const matrix = ground.ownerSVGElement.getScreenCTM().inverse();
    const spot = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix);
    const column = RATES.reduce((best, p, i) => (Math.abs(x(p) - spot.x) < Math.abs(x(RATES[best]) - spot.x) ? i : best), 0);
    return [column, y.invert(spot.y)];
  };
  ground.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || !open) return;
    event.preventDefault();
    ground.setPointerCapture(event.pointerId);
    last = place(event);
    change(...last);
  });
  ground.addEventListener("touchstart", (event) => open && event.preventDefault(), { passive: false });
  ground.addEventListener("pointermove", (event) => {
    if (last === null) return;
    const next = place(event);
    // a fast pointer leaves columns out: those between get what lies between
    const steps = Math.max(1, Math.abs(next[0] - last[0]));
    for (let k = 1; k <= steps; k++) {
      const part = k / steps;
      change(Math.round(last[0] + part * (next[0] - last[0])), last[1] + part * (next[1] - last[1]));
    }
    last = next;
  });
  for (const ending of ["pointerup", "pointercancel"]) ground.addEventListener(ending, () => (last = null));

  stage(parent, "Share of the gap closed, by pass rate", (width) => Math.min(300, width * 0.75), (node, width, height) => {
    const box = { left: 42, right: width - 14, top: 26, bottom: height - 42 };
    x = log([RATES[0], RATES.at(-1)], [box.left, box.right]);
    y = linear([0, 1], [box.bottom, box.top]);
    const across = { x: box.left - 12, y: box.top - 12, width: box.right - box.left + 24, height: box.bottom - box.top + 24 };
    set(ground, across);
    set(hint, { x: (box.left + box.right) / 2, y: y(0.5) - 16 });
    node.replaceChildren(axis("bottom", x, box, { label: "pass rate before the step", ticks: [1e-4, 1e-3, 1e-2, 1e-1] }),
      axis("left", y, box, { label: "share of the gap closed, eta", ticks: [0, 0.5, 1] }), truth, drawn, hint, ground, ...points);
    draw();
  });

  function change(column, height) {
    if (!open) return;
    heights = heights.with(column, Math.round(Math.min(1, Math.max(0, height)) * 1e4) / 1e4);
    set(hint, { visibility: "hidden" });
    draw();
  }

  function draw() {
    set(drawn, { d: line(RATES.map((p, i) => [x(p), y(heights[i])])) });
    points.forEach((point, i) => set(point, { cx: x(RATES[i]), cy: y(heights[i]), "aria-valuenow": heights[i],
      "aria-valuetext": decimals(heights[i], 2) }));
    if (!open) set(truth, { d: line(FINE.map((p) => [x(p), y(share(p))])) });
  }

  return {
    guess: () => heights.join(" "),
    set(numbers) {
      heights = numbers;
      draw();
    },
    tell() {
      open = false;
      set(hint, { visibility: "hidden" });
      for (const point of points) set(point, { tabindex: null, "aria-disabled": "true" });
      draw();
    },
    say() {
      const off = RATES.reduce((sum, p, i) => sum + Math.abs(heights[i] - share(p)), 0) / RATES.length;
      return `Your curve is ${decimals(off, 2)} away from the line, averaged over the points.`;
    },
  };
}
