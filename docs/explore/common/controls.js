// Input: labelled sliders with a number field, choices, buttons, SVG handles to drag. What is drawn: svg.js, figure.js.

import { html, set } from "./svg.js";

let ids = 0;
const fresh = (word) => `ex-${word}-${++ids}`;

/**
 * A labelled slider with a number field; both hold the same value. Keyboard: arrows, Page Up/Down, Home, End.
 * @param {Object} options
 * @param {string} options.label name in words, with symbol and unit: "temperature τ (reward units)"
 * @param {string} options.key short name; the inputs carry it as `data-key`
 * @param {number} options.min
 * @param {number} options.max
 * @param {number} options.value
 * @param {boolean} [options.log] slide evenly in the logarithm
 * @param {boolean} [options.whole] whole numbers only
 * @param {number} [options.step] grid of a linear slider
 * @param {number} [options.digits] significant digits when slid, 3; a typed value is kept as it is
 * @param {(value: number) => string} [options.describe] words for a screen reader, with the unit
 * @param {(value: number) => void} options.onInput called on every change by hand
 * @returns {{node: HTMLElement, value: number, set: (value: number) => void}} `set` calls no listener
 */
export function slider({ label, key, min, max, value, log = false, whole = false, step, digits = 3, describe, onInput }) {
  const ticks = 400;
  const place = (v) => (log ? (ticks * Math.log(v / min)) / Math.log(max / min) : v);
  const tidy = (v) => Math.min(max, Math.max(min, whole ? Math.round(v) : v));
  const read = (at) => tidy(Number((log ? min * (max / min) ** (at / ticks) : at).toPrecision(digits)));
  const id = fresh(key);
  const range = html("input", {
    type: "range", id, "data-key": key, class: "ex-range",
    min: log ? 0 : min, max: log ? ticks : max, step: log ? 1 : (step ?? (whole ? 1 : (max - min) / ticks)),
  });
  const field = html("input", {
    type: "number", "data-key": `${key}-field`, class: "ex-field", min, max, step: whole ? 1 : "any",
    "aria-label": `${label}, as a number`, inputmode: "decimal",
  });
  const node = html("div", { class: "ex-slider" }, html("label", { for: id }, label), range, field);
  const control = {
    node,
    value: NaN,
    set(next) {
      control.value = tidy(next);
      range.value = place(control.value);
      set(range, { "aria-valuetext": describe ? describe(control.value) : String(control.value) });
      if (document.activeElement !== field) field.value = control.value;
    },
  };
  const take = (next) => {
    if (!Number.isFinite(next) || next === control.value) return;
    control.set(next);
    onInput(control.value);
  };
  range.addEventListener("input", () => take(read(Number(range.value))));
  range.addEventListener("keydown", (event) => {
    const direction = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
    if (direction === undefined || !whole || !log) return;
    event.preventDefault(); // the ticks of a log slider are finer than whole numbers
    take(tidy(control.value + direction * (event.shiftKey ? 10 : 1)));
  });
  field.addEventListener("input", () => {
    if (field.value !== "" && Number(field.value) >= min && Number(field.value) <= max) take(Number(field.value));
  });
  field.addEventListener("change", () => {
    if (field.value !== "") take(tidy(Number(field.value)));
    field.value = control.value;
  });
  control.set(value);
  return control;
}

/**
 * A row of buttons of which one is on (radio inputs: arrows move between them).
 * @param {{label: string, key: string, options: Array<[string, string]>, value: string, onInput: Function}} options
 *   `options` are pairs of value and words.
 * @returns {{node: HTMLElement, value: string, set: (value: string) => void}}
 */
export function choice({ label, key, options, value, onInput }) {
  const name = fresh(key);
  const node = html("fieldset", { class: "ex-choice" }, html("legend", {}, label));
  const inputs = new Map();
  for (const [option, words] of options) {
    const input = html("input", { type: "radio", name, value: option, "data-key": `${key}-${option}` });
    input.addEventListener("change", () => {
      control.value = option;
      onInput(option);
    });
    inputs.set(option, input);
    node.append(html("label", {}, input, html("span", {}, words)));
  }
  const control = {
    node,
    value,
    set(next) {
      control.value = inputs.has(next) ? next : options[0][0];
      inputs.get(control.value).checked = true;
    },
  };
  control.set(value);
  return control;
}

/** A button; `key` becomes `data-key`. */
export function button(words, key, onPress) {
  const node = html("button", { type: "button", class: "ex-button", "data-key": key }, words);
  node.addEventListener("click", onPress);
  return node;
}

/** Buttons side by side, with a name for the group. */
export function buttons(label, ...nodes) {
  return html("div", { class: "ex-buttons", role: "group", "aria-label": label }, ...nodes);
}

/**
 * Makes an SVG node a handle: mouse, touch and pen by pointer events, arrows by keyboard, role "slider".
 * @param {SVGGraphicsElement} node give it an invisible circle of radius 22 as well: fingers are wide
 * @param {Object} behaviour
 * @param {string} behaviour.label what is dragged
 * @param {number} behaviour.min smallest and
 * @param {number} behaviour.max largest value
 * @param {() => number} behaviour.now value now
 * @param {() => string} behaviour.describe value in words
 * @param {() => [number, number]} behaviour.at centre of the handle, SVG units
 * @param {(x: number, y: number) => void} behaviour.move the handle was dragged to here, SVG units
 * @param {(dx: number, dy: number) => void} behaviour.nudge arrow keys: -1, 0 or 1 each (times 5 with Shift), y is up
 * @param {(toMax: boolean) => void} [behaviour.jump] Home and End
 * @returns {{refresh: () => void}} call it after every change of the value
 */
export function draggable(node, { label, min, max, now, describe, at, move, nudge, jump }) {
  set(node, {
    tabindex: 0, role: "slider", "aria-label": label, "aria-valuemin": min, "aria-valuemax": max, class: "ex-handle",
  });
  let offset = null;
  const point = (event) => {
    const matrix = node.ownerSVGElement.getScreenCTM().inverse();
    const spot = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix);
    return [spot.x, spot.y];
  };
  node.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    event.preventDefault();
    node.focus({ preventScroll: true });
    node.setPointerCapture(event.pointerId);
    const [x, y] = point(event);
    const [cx, cy] = at();
    offset = [cx - x, cy - y]; // the handle does not jump to the finger
    node.classList.add("ex-dragging");
  });
  // touch-action: none is not enough on shapes inside an SVG: a finger would scroll the page and end the drag
  node.addEventListener("touchstart", (event) => event.preventDefault(), { passive: false });
  node.addEventListener("pointermove", (event) => {
    if (offset === null) return;
    const [x, y] = point(event);
    move(x + offset[0], y + offset[1]);
  });
  const release = () => {
    offset = null;
    node.classList.remove("ex-dragging");
  };
  node.addEventListener("pointerup", release);
  node.addEventListener("pointercancel", release);
  node.addEventListener("keydown", (event) => {
    const arrow = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    const times = event.shiftKey ? 5 : 1;
    if (arrow) nudge(arrow[0] * times, arrow[1] * times);
    else if (jump && (event.key === "Home" || event.key === "End")) jump(event.key === "End");
    else return;
    event.preventDefault();
  });
  return { refresh: () => set(node, { "aria-valuenow": now(), "aria-valuetext": describe() }) };
}
