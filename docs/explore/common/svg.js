// Drawing: elements, scales, ticks, axes, paths, numbers as text. No state and no input here: controls.js, figure.js.

const SVG = "http://www.w3.org/2000/svg";

/**
 * A new SVG element.
 * @param {string} name tag, such as "circle"
 * @param {Object<string, string|number>} [attributes]
 * @param {...(Node|string)} children
 * @returns {SVGElement}
 */
export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

/**
 * A new HTML element; the arguments are those of `svg`.
 * @returns {HTMLElement}
 */
export function html(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function fill(node, attributes, children) {
  set(node, attributes);
  node.append(...children);
  return node;
}

/** Set attributes; null or false removes one, true sets it empty. Unchanged ones are left alone. */
export function set(node, attributes) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) node.removeAttribute(key);
    else if (node.getAttribute(key) !== String(value)) node.setAttribute(key, value === true ? "" : value);
  }
  return node;
}

/** Replace the text of a node where it changed. */
export function text(node, words) {
  if (node.textContent !== words) node.textContent = words;
  return node;
}

/**
 * A straight scale from `domain` to `range` (pixels): `scale(value)`, `scale.invert(pixel)`, `scale.ticks(count)`.
 * @param {[number, number]} domain
 * @param {[number, number]} range
 */
export function linear(domain, range) {
  const [a, b] = domain;
  const [from, to] = range;
  const scale = (value) => from + ((value - a) / (b - a)) * (to - from);
  scale.invert = (pixel) => a + ((pixel - from) / (to - from)) * (b - a);
  scale.ticks = (count = 5) => linearTicks(a, b, count);
  return Object.assign(scale, { domain, range });
}

/** A logarithmic scale, as `linear`; the domain must be positive. */
export function log(domain, range) {
  const inner = linear([Math.log(domain[0]), Math.log(domain[1])], range);
  const scale = (value) => inner(Math.log(value));
  scale.invert = (pixel) => Math.exp(inner.invert(pixel));
  scale.ticks = (count = 6) => logTicks(domain[0], domain[1], count);
  return Object.assign(scale, { domain, range });
}

function linearTicks(a, b, count) {
  const low = Math.min(a, b);
  const high = Math.max(a, b);
  const rough = (high - low) / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) found.push(k === 0 ? 0 : k * step);
  return found;
}

function logTicks(low, high, count) {
  const decades = Math.log10(high / low);
  const factors = decades < count / 3 ? [1, 2, 5] : [1];
  const every = Math.max(1, Math.ceil(decades / count));
  const found = [];
  for (let k = Math.floor(Math.log10(low)); k <= Math.ceil(Math.log10(high)); k++) {
    if (k % every !== 0) continue;
    for (const factor of factors) {
      const value = factor * 10 ** k;
      if (value >= low * 0.999999 && value <= high * 1.000001) found.push(value);
    }
  }
  return found;
}

/**
 * An axis with ticks, light grid lines and a label, as a fresh group. Draw it when scale or size change, not per frame.
 * @param {"bottom"|"left"} side
 * @param {Function} scale from `linear` or `log`
 * @param {{left: number, right: number, top: number, bottom: number}} box the plot area, pixels
 * @param {{ticks?: number[], count?: number, format?: Function, label?: string, grid?: boolean}} [options]
 */
export function axis(side, scale, box, options = {}) {
  const { ticks = scale.ticks(options.count), format = number, label = "", grid = true } = options;
  const group = svg("g", { class: `ex-axis ex-axis-${side}`, "aria-hidden": "true" });
  const bottom = side === "bottom";
  for (const value of ticks) {
    const at = scale(value);
    const line = bottom ? { x1: at, x2: at, y1: box.top, y2: box.bottom } : { x1: box.left, x2: box.right, y1: at, y2: at };
    if (grid) group.append(svg("line", { ...line, class: "ex-grid" }));
    const place = bottom
      ? { x: at, y: box.bottom + 16, "text-anchor": "middle" }
      : { x: box.left - 7, y: at + 4, "text-anchor": "end" };
    group.append(svg("text", { ...place, class: "ex-tick" }, format(value)));
  }
  const edge = bottom
    ? { x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }
    : { x1: box.left, x2: box.left, y1: box.top, y2: box.bottom };
  group.append(svg("line", { ...edge, class: "ex-edge" }));
  const place = bottom
    ? { x: (box.left + box.right) / 2, y: box.bottom + 34, "text-anchor": "middle" }
    : { x: box.left, y: box.top - 10, "text-anchor": "start" };
  if (label) group.append(svg("text", { ...place, class: "ex-label" }, label));
  return group;
}

/** The `d` of a line through points [[x, y], ...]; a point that is null lifts the pen. Tenths of pixels are enough. */
export function line(points) {
  let d = "";
  let pen = false;
  for (const point of points) {
    if (point === null || !Number.isFinite(point[0]) || !Number.isFinite(point[1])) {
      pen = false;
      continue;
    }
    d += `${pen ? "L" : "M"}${point[0].toFixed(1)} ${point[1].toFixed(1)}`;
    pen = true;
  }
  return d;
}

/** A number for people: `digits` significant digits, true minus sign, powers of ten where they are shorter. */
export function number(value, digits = 3) {
  if (Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (value === 0) return "0";
  const size = Math.abs(value);
  let words;
  if (size >= 1e5 || size < 1e-3) {
    const [mantissa, power] = value.toExponential(digits - 1).split("e");
    const short = String(Number(mantissa));
    words = `${short === "1" ? "" : short + "·"}10${superscript(Number(power))}`;
  } else words = String(Number(value.toPrecision(digits)));
  return words.replace("-", "−");
}

function superscript(whole) {
  const marks = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };
  return [...String(whole)].map((mark) => marks[mark]).join("");
}

/** A number with a fixed count of decimals, so that a column does not jump. */
export function decimals(value, count = 3) {
  return Number.isFinite(value) ? value.toFixed(count).replace(/^-(0\.?0*)$/, "$1").replace("-", "−") : number(value);
}
