// The simplex of three actions: places in the triangle, level lines of a divergence around a policy. No DOM here.

import { chi2, kl, mean } from "./pmd.js";

export const HEIGHT = Math.sqrt(3) / 2;

/** A policy [p1, p2, p3] to its place in the triangle with corners (0, 0), (1, 0), (1/2, HEIGHT); y goes up. */
export function toPlace([, second, third]) {
  return [second + third / 2, third * HEIGHT];
}

/** The policy at a place, pulled into the triangle where it lies outside; no probability below `least`. */
export function toPolicy([x, y], least = 0) {
  const third = y / HEIGHT;
  const second = x - third / 2;
  return inside([1 - second - third, second, third], least);
}

/** Probabilities of at least `least` that sum to 1, to four decimals, so that an address can hold them exactly. */
export function inside(probs, least = 0) {
  const kept = probs.map((p) => Math.max(p, 0));
  const total = kept.reduce((sum, p) => sum + p, 0) || 1;
  const room = 1 - 3 * least;
  const [first, second] = kept.map((p) => Math.round((least + (room * p) / total) * 1e4) / 1e4);
  return [first, second, Math.round((1 - first - second) * 1e4) / 1e4];
}

/** kl weight * KL + chi2 weight * chi2, of `fresh` from `old`. */
export function divergence(fresh, old, [a, b]) {
  return (a ? a * kl(fresh, old) : 0) + (b ? b * chi2(fresh, old) : 0);
}

/**
 * The level line of a KL + b chi2 around a policy: policies, null where the line has left the triangle.
 *
 * The divergence is convex and 0 at `pi` only: each ray from there meets the line once. Newton with a bracket.
 * @param {number[]} pi three probabilities > 0
 * @param {[number, number]} weights of KL and of chi2
 * @param {number} level in units of the divergence, > 0
 * @param {number} [rays] points on a whole line
 * @returns {Array<number[]|null>} closed: the first point is repeated at the end
 */
export function levelLine(pi, [a, b], level, rays = 120) {
  const found = [];
  const turn = (2 * Math.PI) / rays;
  let before = null;
  for (let k = 0; k <= rays; k++) {
    const point = meet(pi, k * turn, a, b, level);
    if (k > 0 && (point === null) !== (before === null)) found.push(leaving(k));
    found.push(point);
    before = point;
  }
  return found;

  /** The last point inside between two rays of which one leaves the triangle: by halving the angle. */
  function leaving(k) {
    let [inner, outer] = before === null ? [k, k - 1] : [k - 1, k];
    let last = null;
    for (let n = 0; n < 10; n++) {
      const middle = (inner + outer) / 2;
      const point = meet(pi, middle * turn, a, b, level);
      if (point === null) outer = middle;
      else {
        inner = middle;
        last = point;
      }
    }
    return last;
  }
}

function meet(pi, angle, a, b, level) {
  const third = Math.sin(angle) / HEIGHT;
  const second = Math.cos(angle) - third / 2;
  const ray = [-second - third, second, third];
  let edge = Infinity; // where the ray leaves the triangle
  let bend = 0; // half the second derivative at pi
  for (let i = 0; i < 3; i++) {
    if (ray[i] < 0) edge = Math.min(edge, -pi[i] / ray[i]);
    bend += ((a / 2 + b) * ray[i] * ray[i]) / pi[i];
  }
  let low = 0;
  let high = edge;
  const at = (t) => pi.map((p, i) => Math.max(p + t * ray[i], 0));
  if (divergence(at(edge), pi, [a, b]) < level) return null;
  let t = Math.min(Math.sqrt(level / bend), edge * 0.999);
  for (let n = 0; n < 40; n++) {
    const there = at(t);
    let slope = 0;
    let value = 0;
    for (let i = 0; i < 3; i++) {
      const ratio = there[i] / pi[i];
      const u = Math.log(Math.max(ratio, 1e-300));
      value += a * there[i] * u + b * pi[i] * (ratio - 1) ** 2;
      slope += ray[i] * (a * u + 2 * b * (ratio - 1));
    }
    if (value > level) high = t;
    else low = t;
    let next = t - (value - level) / slope;
    if (!(next > low && next < high)) next = (low + high) / 2;
    if (Math.abs(next - t) < 1e-7) break; // of the side of the triangle: far below a pixel
    t = next;
  }
  return at(t);
}

/**
 * The line of policies with expected reward `value`: its two ends on the sides of the triangle, or null.
 * @param {number[]} reward of the three actions
 * @param {number} value
 */
export function rewardLine(reward, value) {
  const ends = [];
  for (const [i, j] of [[0, 1], [1, 2], [2, 0]]) {
    if (reward[i] === reward[j]) continue;
    const share = (value - reward[i]) / (reward[j] - reward[i]);
    if (share < -1e-12 || share > 1 + 1e-12) continue;
    const end = [0, 0, 0];
    end[i] = 1 - share;
    end[j] = share;
    if (ends.every((other) => Math.abs(other[0] - end[0]) + Math.abs(other[1] - end[1]) > 1e-9)) ends.push(end);
  }
  return ends.length === 2 ? ends : null;
}

/**
 * `steps` updates one after the other, each from the policy before.
 * @param {Function} update `pmdPart` or `pmdMean`
 * @returns {Array<{probs: number[], value: number, kl: number, chi2: number, lam: number}>} `steps` + 1 entries; kl and
 *   chi2 are those of the last step, from the policy before it
 */
export function iterate(update, pi, reward, tau, steps) {
  const path = [{ probs: pi, value: mean(pi, reward), kl: 0, chi2: 0, lam: NaN, logRatio: [0, 0, 0] }];
  for (let k = 0; k < steps; k++) {
    const before = path[k].probs;
    const { probs, lam = NaN, logRatio } = update(before, reward, tau);
    const total = probs.reduce((sum, p) => sum + p, 0);
    const next = probs.map((p) => p / total);
    path.push({ probs: next, value: mean(next, reward), kl: kl(next, before), chi2: chi2(next, before), lam, logRatio });
  }
  return path;
}
