// How long responses are: the share that is still being written after t tokens. Port of planner/lengths.py.
// The measured quantiles come from pmdkit at build time (generated/planner.js). Times and memory: other files here.

const HALVINGS = 60; // of the interval of the logarithm of the scale: more changes no digit

/** numpy.interp of 0, 1, ... in the quantile function, handed to `take(t, share)` one by one. */
function walk(quantiles, scale, width, take) {
  const last = quantiles.length - 1;
  let j = 0;
  for (let t = 0; t < width; t += 1) {
    while (j < last && quantiles[j + 1] * scale <= t) j += 1;
    const low = quantiles[j] * scale;
    if (t < low) take(t, 0);
    else if (j === last) take(t, 1);
    else take(t, (j + (t - low) / (quantiles[j + 1] * scale - low)) / last);
  }
}

function aliveFrom(quantiles, scale, width) {
  const alive = new Float64Array(width);
  walk(quantiles, scale, width, (t, gone) => {
    alive[t] = 1 - gone;
  });
  return alive;
}

/** The sum of 1 - share over all t, segment by segment: an arithmetic series in each, so no loop over tokens. */
function meanOf(quantiles, scale, width) {
  const last = quantiles.length - 1;
  const reach = (value) => Math.min(width, Math.ceil(value)); // whole t below
  let sum = reach(quantiles[0] * scale);
  for (let j = 0; j < last; j += 1) {
    const [low, high] = [quantiles[j] * scale, quantiles[j + 1] * scale];
    const [first, end] = [reach(low), reach(high)];
    const middle = (first + end - 1) / 2;
    sum += (end - first) * (1 - (j + (middle - low) / (high - low)) / last);
  }
  return sum;
}

/**
 * A distribution of response lengths.
 * @param {number[]} quantiles evenly spaced, in units of the width
 * @param {number} width longest response, tokens
 * @param {number} [mean] stretch the shape until the cut-off lengths have it, tokens; at most 0.95 of the width
 * @returns {{alive: Float64Array, width: number, mean: number, square: number}} alive[t] = P(length > t)
 */
export function lengths(quantiles, width, mean) {
  let scale = width;
  if (mean !== undefined && mean !== null) {
    if (!(mean >= 1 && mean <= 0.95 * width)) throw new Error(`mean length is ${mean}; expected 1 to ${0.95 * width}`);
    let [low, high] = [1e-6, 1e6];
    for (let i = 0; i < HALVINGS; i += 1) {
      const middle = Math.sqrt(low * high);
      if (meanOf(quantiles, middle * width, width) < mean) low = middle;
      else high = middle;
    }
    scale = high * width;
  }
  const alive = aliveFrom(quantiles, scale, width);
  let [sum, square] = [0, 0];
  for (let t = 0; t < width; t += 1) {
    sum += alive[t];
    square += (2 * t + 1) * alive[t];
  }
  return { alive, width, mean: sum, square };
}

/** The most tokens that are held at once if so many rows start together, expected. */
export function peakTokens(shape, rows, prompt) {
  let most = 0;
  for (let t = 0; t < shape.width; t += 1) most = Math.max(most, rows * shape.alive[t] * (prompt + t));
  return most;
}
