// The transformer of pmdkit/toy/model.py, forwards and backwards by hand, and its AdamW. Nothing is drawn here.
// tests/explore/test_train.py compares log-probabilities, gradients and steps with torch.
//
// Shapes: n nodes, d dimension, H heads, D = d / H, F inner width, V vocabulary; matrices are arrays, row by row.
// Rows of tokens are read as the tree of their prefixes, as in pmdkit/toy/sampling.py: each prefix is one node, which
// attends to itself and to those above it. So nothing is padded or masked, and rows may differ in length.

/** Those of the recipe modular-sum; `gain` is that of the head's first weights. */
export const SIZES = { vocabulary: 11, dimension: 64, layers: 2, heads: 2, inner: 168, gain: 0.1 };
const FLOOR = 1e-6; // added to mean squares before the root
const THETA = 10000; // wavelength base of the rotary positions

/**
 * The prefixes of some rows of tokens, each once.
 * @param {number[][]} rows
 * @returns {{token: number[], above: number[][], leaf: number[]}} of a node: its last token, and the nodes from the
 *   first token down to it; of a row: the node of all its tokens
 */
export function prefixTree(rows) {
  const [token, above, children] = [[], [], [new Map()]]; // children[n + 1] are those of node n
  const leaf = rows.map((row) => {
    let node = -1;
    for (const next of row) {
      const known = children[node + 1];
      if (!known.has(next)) {
        known.set(next, token.length);
        above.push([...(above[node] ?? []), token.length]);
        token.push(next);
        children.push(new Map());
      }
      node = known.get(next);
    }
    return node;
  });
  return { token, above, leaf };
}

/**
 * out [rows, columns] += sum_k a[i, k] b[j, k]; a step is the distance in the array from one i, j or k to the next, so
 * that a transpose is another order of steps. Eight products share their reads: most of the time goes here.
 */
function multiply(out, rows, columns, depth, a, ai, ak, b, bj, bk) {
  for (let i = 0; i < rows; i += 2) {
    const a1 = i + 1 < rows ? ai : 0; // beyond the edge the first row or column is computed again and not written
    for (let j = 0; j < columns; j += 4) {
      const some = columns - j;
      const b1 = some > 1 ? bj : 0, b2 = some > 2 ? 2 * bj : 0, b3 = some > 3 ? 3 * bj : 0;
      let s0 = 0, s1 = 0, s2 = 0, s3 = 0, t0 = 0, t1 = 0, t2 = 0, t3 = 0;
      for (let k = 0, p = i * ai, q = j * bj; k < depth; k += 1, p += ak, q += bk) {
        const x = a[p], y = a[p + a1], u = b[q], v = b[q + b1], w = b[q + b2], z = b[q + b3];
        s0 += x * u; s1 += x * v; s2 += x * w; s3 += x * z;
        t0 += y * u; t1 += y * v; t2 += y * w; t3 += y * z;
      }
      for (let m = 0, o = i * columns + j; m < (a1 ? 2 : 1); m += 1, o += columns) {
        out[o] += m ? t0 : s0;
        if (b1) out[o + 1] += m ? t1 : s1;
        if (b2) out[o + 2] += m ? t2 : s2;
        if (b3) out[o + 3] += m ? t3 : s3;
      }
    }
  }
  return out;
}

/** out [n, wide] += x [n, deep] w^T, w [wide, deep]. */
function product(out, x, w, deep) {
  return multiply(out, x.length / deep, w.length / deep, deep, x, deep, 1, w, deep, 1);
}

/** Through y = x w^T: adds dw, returns dx. */
function productBack(dy, x, w, dw, deep) {
  const wide = w.length / deep;
  const rows = x.length / deep;
  multiply(dw, wide, deep, rows, dy, 1, wide, x, 1, deep);
  return multiply(new Float32Array(x.length), rows, deep, wide, dy, wide, 1, w, 1, deep);
}

/** h / sqrt(mean square + FLOOR), row by row, times the weight; and the reciprocal of each row's root. */
function rmsNorm(h, weight) {
  const [d, y] = [weight.length, new Float32Array(h.length)];
  const inverse = Float64Array.from({ length: h.length / d }, (_, n) => {
    let square = 0;
    for (let k = n * d; k < (n + 1) * d; k += 1) square += h[k] * h[k];
    const root = 1 / Math.sqrt(square / d + FLOOR);
    for (let k = 0, o = n * d; k < d; k += 1, o += 1) y[o] = h[o] * root * weight[k];
    return root;
  });
  return { y, inverse };
}

/** Through the norm: adds to dh and to the slope of the weight. */
function rmsNormBack(dy, h, inverse, weight, dweight, dh) {
  const d = weight.length;
  for (let n = 0, o = 0; o < h.length; n += 1, o += d) {
    let dot = 0;
    for (let k = 0; k < d; k += 1) {
      dweight[k] += dy[o + k] * h[o + k] * inverse[n];
      dot += dy[o + k] * weight[k] * h[o + k];
    }
    const along = (dot * inverse[n] ** 2) / d;
    for (let k = 0; k < d; k += 1) dh[o + k] += inverse[n] * (dy[o + k] * weight[k] - h[o + k] * along);
  }
}

/** x[from ... to - 1] becomes its log-softmax. */
function logSoftmax(x, from, to) {
  let [top, sum] = [-Infinity, 0];
  for (let k = from; k < to; k += 1) top = Math.max(top, x[k]);
  for (let k = from; k < to; k += 1) sum += Math.exp(x[k] - top);
  const shift = top + Math.log(sum);
  for (let k = from; k < to; k += 1) x[k] -= shift;
}

export class Transformer {
  /**
   * @param {Object} [sizes] see SIZES
   * @param {() => number} [normal] draws the first weights; without it, set `weights` before use
   */
  constructor(sizes = SIZES, normal = () => 0) {
    const { vocabulary: V, dimension: d, layers, inner: F, gain } = sizes;
    const residual = (2 * layers) ** -0.5; // the residual stream keeps its scale over all layers
    const block = (b) => Object.entries({
      norm_attention: [1, d], qkv: [3 * d, d, 1], mix: [d, d, residual],
      norm_feed: [1, d], gate_up: [2 * F, d, 1], down: [d, F, residual],
    }).map(([name, shape]) => [`blocks.${b}.${name}`, shape]);
    const blocks = Array.from({ length: layers }, (_, b) => block(b)).flat();
    const shapes = [["embedding", [V, d, 1]], ...blocks, ["norm", [1, d]], ["head", [V, d, gain]]];
    const count = shapes.reduce((sum, [, [rows, columns]]) => sum + rows * columns, 0);
    /** All weights in one array, and their slopes. */
    [this.flat, this.slope] = [new Float32Array(count), new Float32Array(count)];
    /** The same by the names of torch: parts of `flat` and of `slope`. */
    [this.weights, this.gradient] = [{}, {}];
    this.sizes = sizes;
    let start = 0;
    for (const [name, [rows, columns, scale]] of shapes) {
      const end = start + rows * columns;
      for (let k = start; k < end; k += 1) this.flat[k] = scale === undefined ? 1 : normal() * scale * columns ** -0.5;
      this.weights[`${name}.weight`] = this.flat.subarray(start, end);
      this.gradient[`${name}.weight`] = this.slope.subarray(start, end);
      start = end;
    }
  }

  /** Rotates neighbouring coordinates of q and k by the position of their token; turn = -1 rotates back. */
  rotate(qkv, above, turn) {
    const { dimension: d, heads } = this.sizes;
    const pairs = d / heads / 2;
    const most = above.reduce((sum, path) => Math.max(sum, path.length), 0);
    const angle = (_, k) => Math.floor(k / pairs) * THETA ** (-(k % pairs) / pairs);
    const angles = Array.from({ length: most * pairs }, angle);
    const [cosines, sines] = [angles.map(Math.cos), angles.map((x) => turn * Math.sin(x))];
    above.forEach((path, n) => {
      for (let pair = 0, o = n * 3 * d; pair < d; pair += 1, o += 2) { // d / 2 in q, then as many in k
        const at = (path.length - 1) * pairs + (pair % pairs);
        const x = qkv[o], y = qkv[o + 1];
        qkv[o] = x * cosines[at] - y * sines[at];
        qkv[o + 1] = x * sines[at] + y * cosines[at];
      }
    });
  }

  /** What each head of each node reads, [n, d], and its shares: those of node n in head h are shares[n * H + h]. */
  attend(qkv, above) {
    const { dimension: d, heads } = this.sizes;
    const [D, read, shares] = [d / heads, new Float32Array(above.length * d), []];
    above.forEach((path, n) => {
      for (let head = 0; head < d; head += D) {
        const share = new Float64Array(path.length);
        path.forEach((m, i) => {
          for (let k = 0; k < D; k += 1) share[i] += qkv[n * 3 * d + head + k] * qkv[(m * 3 + 1) * d + head + k];
          share[i] /= Math.sqrt(D);
        });
        logSoftmax(share, 0, share.length);
        path.forEach((m, i) => {
          share[i] = Math.exp(share[i]);
          for (let k = 0; k < D; k += 1) read[n * d + head + k] += share[i] * qkv[(m * 3 + 2) * d + head + k];
        });
        shares.push(share);
      }
    });
    return { read, shares };
  }

  attendBack(dread, qkv, shares, above) {
    const { dimension: d, heads } = this.sizes;
    const [D, dqkv] = [d / heads, new Float32Array(qkv.length)];
    above.forEach((path, n) => {
      for (let h = 0; h < heads; h += 1) {
        const [share, q, o] = [shares[n * heads + h], n * 3 * d + h * D, n * d + h * D];
        const dshare = path.map((m, i) => {
          let dot = 0;
          for (let k = 0, v = (m * 3 + 2) * d + h * D; k < D; k += 1) {
            dot += dread[o + k] * qkv[v + k];
            dqkv[v + k] += share[i] * dread[o + k];
          }
          return dot;
        });
        const mean = dshare.reduce((sum, slope, i) => sum + share[i] * slope, 0);
        path.forEach((m, i) => {
          const slope = (share[i] * (dshare[i] - mean)) / Math.sqrt(D);
          for (let k = 0, key = (m * 3 + 1) * d + h * D; k < D; k += 1) {
            dqkv[q + k] += slope * qkv[key + k];
            dqkv[key + k] += slope * qkv[q + k];
          }
        });
      }
    });
    return dqkv;
  }

  /**
   * Log-probabilities [n, V] of the token after each node of a tree; what `backward` needs is kept.
   * @param {{token: number[], above: number[][]}} tree from `prefixTree`
   * @param {number} [temperature] divides the logits: the policy has the temperature that it is sampled at
   */
  forward({ token, above }, temperature = 1) {
    const { vocabulary: V, dimension: d, layers, inner: F } = this.sizes;
    let h = new Float32Array(token.length * d);
    token.forEach((word, n) => h.set(this.weights["embedding.weight"].subarray(word * d, (word + 1) * d), n * d));
    const kept = [];
    for (let b = 0; b < layers; b += 1) {
      const w = (name) => this.weights[`blocks.${b}.${name}.weight`];
      const first = rmsNorm(h, w("norm_attention"));
      const qkv = product(new Float32Array(token.length * 3 * d), first.y, w("qkv"), d);
      this.rotate(qkv, above, 1);
      const { read, shares } = this.attend(qkv, above);
      const middle = product(h.slice(), read, w("mix"), d);
      const second = rmsNorm(middle, w("norm_feed"));
      const pair = product(new Float32Array(token.length * 2 * F), second.y, w("gate_up"), d);
      const gated = new Float32Array(token.length * F); // silu(gate) * up
      for (let n = 0, k = 0; n < token.length; n += 1) {
        for (let g = 2 * n * F; g < (2 * n + 1) * F; g += 1, k += 1) {
          gated[k] = (pair[g] / (1 + Math.exp(-pair[g]))) * pair[g + F];
        }
      }
      kept.push({ h, first, qkv, read, shares, middle, second, pair, gated });
      h = product(middle.slice(), gated, w("down"), F);
    }
    const last = rmsNorm(h, this.weights["norm.weight"]);
    const logp = product(new Float32Array(token.length * V), last.y, this.weights["head.weight"], d);
    for (let k = 0; k < logp.length; k += 1) logp[k] /= temperature;
    for (let o = 0; o < logp.length; o += V) logSoftmax(logp, o, o + V);
    this.tape = { token, above, temperature, kept, h, last, logp };
    return logp;
  }

  /** From d loss / d log-probabilities [n, V] of the last `forward` to `slope`, d loss / d weights; returns it. */
  backward(dlogp) {
    const { vocabulary: V, dimension: d, layers, inner: F } = this.sizes;
    const { token, above, temperature, kept, h: end, last, logp } = this.tape;
    this.slope.fill(0);
    const dlogits = new Float32Array(logp.length);
    for (let o = 0; o < logp.length; o += V) {
      let sum = 0;
      for (let k = o; k < o + V; k += 1) sum += dlogp[k];
      for (let k = o; k < o + V; k += 1) dlogits[k] = (dlogp[k] - sum * Math.exp(logp[k])) / temperature;
    }
    const dh = new Float32Array(end.length);
    const dlast = productBack(dlogits, last.y, this.weights["head.weight"], this.gradient["head.weight"], d);
    rmsNormBack(dlast, end, last.inverse, this.weights["norm.weight"], this.gradient["norm.weight"], dh);
    for (let b = layers - 1; b >= 0; b -= 1) {
      const both = (name) => [this.weights, this.gradient].map((from) => from[`blocks.${b}.${name}.weight`]);
      const { h, first, qkv, read, shares, middle, second, pair, gated } = kept[b];
      const dgated = productBack(dh, gated, ...both("down"), F);
      const dpair = new Float32Array(pair.length);
      for (let n = 0, k = 0; n < token.length; n += 1) {
        for (let g = 2 * n * F; g < (2 * n + 1) * F; g += 1, k += 1) {
          const sigmoid = 1 / (1 + Math.exp(-pair[g]));
          dpair[g] = dgated[k] * pair[g + F] * sigmoid * (1 + pair[g] * (1 - sigmoid));
          dpair[g + F] = dgated[k] * pair[g] * sigmoid;
        }
      }
      const dsecond = productBack(dpair, second.y, ...both("gate_up"), d);
      rmsNormBack(dsecond, middle, second.inverse, ...both("norm_feed"), dh);
      const dqkv = this.attendBack(productBack(dh, read, ...both("mix"), d), qkv, shares, above);
      this.rotate(dqkv, above, -1);
      rmsNormBack(productBack(dqkv, first.y, ...both("qkv"), d), h, first.inverse, ...both("norm_attention"), dh);
    }
    const dembedding = this.gradient["embedding.weight"];
    token.forEach((word, n) => {
      for (let k = 0; k < d; k += 1) dembedding[word * d + k] += dh[n * d + k];
    });
    return this.slope;
  }
}

/** torch's AdamW with the defaults of pmdkit/optimizer.py, on a gradient whose norm is clipped as torch does it. */
export class AdamW {
  constructor(count) {
    [this.steps, this.mean, this.square] = [0, new Float32Array(count), new Float32Array(count)];
  }

  /** One step of `flat`, in place; returns the norm of the gradient before the clip. */
  step(flat, slope, lr, { clip = 1, decay = 0.01, beta1 = 0.9, beta2 = 0.999, floor = 1e-8 } = {}) {
    let sum = 0;
    for (let k = 0; k < slope.length; k += 1) sum += slope[k] * slope[k];
    const norm = Math.sqrt(sum);
    const scale = Math.min(1, clip / (norm + 1e-6));
    this.steps += 1;
    const { mean, square } = this;
    const [rate, root] = [lr / (1 - beta1 ** this.steps), Math.sqrt(1 - beta2 ** this.steps)];
    for (let k = 0; k < flat.length; k += 1) {
      const g = slope[k] * scale;
      mean[k] += (1 - beta1) * (g - mean[k]);
      square[k] = beta2 * square[k] + (1 - beta2) * g * g;
      flat[k] -= lr * decay * flat[k] + (rate * mean[k]) / (Math.sqrt(square[k]) / root + floor);
    }
    return norm;
  }
}
