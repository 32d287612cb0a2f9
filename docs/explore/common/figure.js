// The frame of an explorable: takes the place of the static picture, sizes the stage, draws once a frame, tells numbers.

import { FrameTimer } from "./frames.js";
import { html, set, svg, text } from "./svg.js";

/**
 * Replaces the static picture of `<div class="explore" data-explore="name">` by a live one.
 *
 * The picture stays where it is if anything fails, so a reader without a recent browser loses nothing.
 * @param {string} name
 * @param {(body: HTMLElement, timer: FrameTimer) => void} build fills the body; runs once
 */
export function mount(name, build) {
  const host = document.querySelector(`[data-explore="${name}"]`);
  if (host === null) throw new Error(`this page has no element with data-explore="${name}"`);
  const body = html("div", { class: "ex-body" });
  const timer = new FrameTimer();
  host.append(body); // first: the stage measures its width
  try {
    build(body, timer);
  } catch (error) {
    body.remove();
    throw error;
  }
  for (const fixed of host.querySelectorAll(".explore-static")) fixed.hidden = true;
  host.frames = timer; // a test reads it
  set(host, { "data-ready": "true" });
}

/**
 * An SVG as wide as its column, one unit a pixel, so that text keeps its size on a phone.
 * @param {HTMLElement} parent
 * @param {string} label what the picture is, for who cannot see it; `describe` in the live sentence says the rest
 * @param {(width: number) => number} height pixels for a width in pixels
 * @param {(node: SVGSVGElement, width: number, height: number) => void} layout draws what depends on the size; runs
 *   now and after each change of width
 * @returns {SVGSVGElement}
 */
export function stage(parent, label, height, layout) {
  const node = svg("svg", { class: "ex-stage", role: "group", "aria-label": label });
  const box = html("div", { class: "ex-stage-box" }, node);
  parent.append(box);
  let before = 0;
  const fit = () => {
    const width = Math.max(260, Math.round(box.clientWidth));
    if (width === before) return;
    before = width;
    const tall = Math.round(height(width));
    set(node, { viewBox: `0 0 ${width} ${tall}`, width, height: tall });
    layout(node, width, tall);
  };
  fit();
  new ResizeObserver(fit).observe(box);
  return node;
}

/**
 * Coalesces changes into one draw per frame.
 * @param {() => void} draw
 * @param {FrameTimer} timer
 * @returns {() => void} call it after each change of the state
 */
export function scheduler(draw, timer) {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame((now) => {
      waiting = false;
      timer.measure(now, draw);
    });
  };
}

/**
 * A table of numbers. Cells carry the full digits as `data-value`, under `data-cell="row/column"`.
 * @param {string} caption
 * @param {Array<[string, string]>} rows pairs of key and words
 * @param {Array<[string, string, string?]>} columns key, words, class of the colour ("ex-mean", "ex-part", ...)
 * @returns {{node: HTMLElement, show: (row: string, column: string, value: number, words: string) => void}}
 */
export function readout(caption, rows, columns) {
  const cells = new Map();
  const head = html("tr", {}, html("td", {}));
  for (const [, words, colour = ""] of columns) head.append(html("th", { scope: "col", class: colour }, words));
  const body = html("tbody", {});
  for (const [row, words] of rows) {
    const entry = html("tr", {}, html("th", { scope: "row" }, words));
    for (const [column] of columns) {
      const cell = html("td", { "data-cell": `${row}/${column}` });
      cells.set(`${row}/${column}`, cell);
      entry.append(cell);
    }
    body.append(entry);
  }
  const node = html("table", { class: "ex-readout" }, html("caption", {}, caption), html("thead", {}, head), body);
  return {
    node,
    show(row, column, value, words) {
      const cell = cells.get(`${row}/${column}`);
      set(cell, { "data-value": value });
      text(cell, words);
    },
  };
}

/**
 * One sentence under the picture that says what is to be seen now. A screen reader hears it when changes pause.
 * @returns {{node: HTMLElement, say: (words: string) => void}}
 */
export function sentence() {
  const seen = html("p", { class: "ex-sentence", "aria-hidden": "true" });
  const heard = html("p", { class: "ex-heard", role: "status", "aria-live": "polite" });
  let timer = 0;
  return {
    node: html("div", {}, seen, heard),
    say(words) {
      if (seen.textContent === words) return;
      seen.textContent = words;
      clearTimeout(timer);
      timer = setTimeout(() => text(heard, words), 500);
    },
  };
}

/** Whether the reader asked for less motion: then show the end of an animation at once. */
export function still() {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}

/**
 * Calls `tick` every `wait` milliseconds until it returns false; with less motion wanted, all at once.
 * @param {() => boolean} tick
 * @param {number} wait
 * @returns {() => void} stops it
 */
export function repeat(tick, wait) {
  if (still()) {
    while (tick());
    return () => {};
  }
  let id = 0;
  const next = () => {
    if (tick()) id = setTimeout(next, wait);
  };
  next();
  return () => clearTimeout(id);
}
