// The exact updates on one prompt: PMD-part, PMD-mean (Theorem 1), the mixed KL-chi2 problem; divergences. No DOM here.
// The twin of pmdkit.theory: pmd_part_update.py, pmd_mean_update.py, mixed_problem.py. Golden-tested against it.

/** E_pi of an array of values. */
export function mean(pi, values) {
  let sum = 0;
  for (let i = 0; i < pi.length; i++) sum += pi[i] * values[i];
  return sum;
}

/** e^x - 1 - x >= 0 without cancellation near 0. */
export function excess(x) {
  if (Math.abs(x) >= 0.02) return Math.expm1(x) - x;
  return ((x * x) / 2) * (1 + (x / 3) * (1 + (x / 4) * (1 + (x / 5) * (1 + (x / 6) * (1 + x / 7)))));
}

/** Advantages r - E_pi r, counted from the most probable action, so that digits stay where pi is almost sure of it. */
export function advantages(pi, reward) {
  const most = pi.indexOf(Math.max(...pi));
  const shifted = reward.map((r) => r - reward[most]);
  const centre = mean(pi, shifted);
  return shifted.map((r) => r - centre);
}

/**
 * Wright's omega, W(e^z): the w > 0 with w + log w = z. Never forms e^z where that would overflow.
 * @param {number} z nats
 */
export function omega(z) {
  if (z < -700) return 0;
  let w = z < -2 ? Math.exp(z) : z < 1 ? Math.exp((z - 0.57) * 0.63) * 0.6 + 0.02 : z - Math.log(z) + Math.log(z) / z;
  for (let k = 0; k < 40; k++) {
    // Newton in log w, so that w stays positive: f = w + log w - z, f' by log w = w + 1
    const step = (w + Math.log(w) - z) / (w + 1);
    w *= Math.exp(-step);
    if (Math.abs(step) < 1e-15) break;
  }
  return w;
}

/** log E_pi e^target for targets of mean 0, with full relative accuracy. */
export function logMeanExp(pi, target) {
  const top = Math.max(...target.filter((_, i) => pi[i] > 0));
  if (top <= 600) return Math.log1p(mean(pi, target.map((t) => excess(Math.min(t, 600)))));
  return top + Math.log(mean(pi, target.map((t) => Math.exp(Math.min(t - top, 0)))));
}

/** pi e^u; an action of probability 0 keeps it. */
function grown(pi, logRatio) {
  return pi.map((p, i) => (p === 0 ? 0 : p * Math.exp(Math.min(logRatio[i], 709))));
}

/**
 * PMD-part: the Boltzmann update u = r/tau - log Z, Z = E_pi e^(r/tau).
 * @param {number[]} pi policy, sums to 1
 * @param {number[]} reward reward units
 * @param {number} tau reward units, > 0
 * @returns {{logRatio: number[], probs: number[], logZ: number}} nats
 */
export function pmdPart(pi, reward, tau) {
  const target = advantages(pi, reward).map((a) => a / tau);
  const logMean = logMeanExp(pi, target);
  const logRatio = target.map((t) => t - logMean);
  return { logRatio, probs: grown(pi, logRatio), logZ: mean(pi, reward) / tau + logMean };
}

/**
 * PMD-mean, Theorem 1: u = Delta/tau - W(x e^(Delta/tau)), x = lambda/tau^2 such that E_pi e^u = 1.
 *
 * Newton in log x with a bracket. E_pi e^u falls steadily in x, from above 1 at x = 0.
 * @param {number[]} pi policy, sums to 1
 * @param {number[]} reward reward units
 * @param {number} tau reward units, > 0
 * @returns {{logRatio: number[], probs: number[], lam: number}} nats; lam in reward units squared
 */
export function pmdMean(pi, reward, tau) {
  const target = advantages(pi, reward).map((a) => a / tau);
  const gain = mean(pi, target.map((t) => Math.max(t, 0)));
  if (gain === 0) return { logRatio: target, probs: [...pi], lam: 0 };
  let high = Math.log(Math.min(logMeanExp(pi, target), 2 * gain + 2)) + 1e-9; // x <= log E e^target, the paper's bound
  let low = high - 60;
  let logX = Math.min(high, Math.log(Math.sqrt(gain * (1 + gain))));
  let u = target;
  for (let k = 0; k < 200; k++) {
    u = target.map((t) => solveU(t, logX));
    let sum = 0; // E_pi e^u - 1, from e^u - 1: digits of a small u stay
    let slope = 0;
    for (let i = 0; i < pi.length; i++) {
      const w = Math.exp(logX + Math.min(u[i], 700));
      sum += pi[i] * Math.expm1(u[i]);
      slope -= (pi[i] * Math.exp(u[i]) * w) / (1 + w);
    }
    if (sum > 0) low = Math.max(low, logX);
    else high = Math.min(high, logX);
    let next = logX - sum / slope;
    if (!(next > low && next < high)) next = (low + high) / 2;
    const step = Math.abs(next - logX);
    logX = next;
    if (step < 1e-15 * Math.max(1, Math.abs(logX)) || high - low < 1e-14) break;
  }
  // x E e^u = E(e^u - 1 - u): a sum of positive terms keeps the digits of a small x
  const x = mean(pi, u.map(excess)) / mean(pi, u.map(Math.exp));
  return { logRatio: u, probs: grown(pi, u), lam: x * tau * tau };
}

/** The u with u + e^logX e^u = target. */
function solveU(target, logX) {
  return target - omega(target + logX);
}

/**
 * The maximiser of E r - tau KL - lam/(2 tau) chi2; at PMD-mean's lambda it is PMD-mean, at 0 it is PMD-part.
 *
 * u + k (e^u - 1) = Delta/tau + d, k = lam/tau^2, and d <= 0 such that E_pi e^u = 1, by bisection on d and Newton.
 * @returns {{logRatio: number[], probs: number[]}}
 */
export function mixed(pi, reward, tau, lam) {
  const target = advantages(pi, reward).map((a) => a / tau);
  const k = lam / (tau * tau);
  if (k === 0) return pmdPart(pi, reward, tau);
  const answer = (d) => target.map((t) => solveU(t + d + k, Math.log(k)));
  let low = -logMeanExp(pi, target);
  let high = 0;
  let d = low / 2;
  let u = answer(d);
  for (let n = 0; n < 200 && high - low > 1e-15 * -low; n++) {
    let sum = 0;
    let slope = 0;
    for (let i = 0; i < pi.length; i++) {
      const e = Math.exp(Math.min(u[i], 700));
      sum += pi[i] * Math.expm1(Math.min(u[i], 700));
      slope += (pi[i] * e) / (1 + k * e);
    }
    if (sum < 0) low = d;
    else high = d;
    let next = d - sum / slope;
    if (!(next > low && next < high)) next = (low + high) / 2;
    if (Math.abs(next - d) < 1e-16 * Math.abs(d)) break;
    d = next;
    u = answer(d);
  }
  return { logRatio: u, probs: grown(pi, u) };
}

/** KL(new || old), nats: a sum of terms >= 0, new log(new/old) - new + old. */
export function kl(fresh, old) {
  let sum = 0;
  for (let i = 0; i < fresh.length; i++) {
    if (fresh[i] > 0 && old[i] === 0) return Infinity;
    if (fresh[i] === 0) {
      sum += old[i];
      continue;
    }
    const u = Math.log(fresh[i]) - Math.log(old[i]);
    sum += Math.abs(u) < 0.02 ? fresh[i] * excess(-u) : fresh[i] * u - fresh[i] + old[i];
  }
  return sum;
}

/** chi2(new || old) = E_old (new/old - 1)^2. */
export function chi2(fresh, old) {
  let sum = 0;
  for (let i = 0; i < fresh.length; i++) {
    if (fresh[i] > 0 && old[i] === 0) return Infinity;
    if (old[i] > 0) sum += ((fresh[i] - old[i]) / old[i]) * (fresh[i] - old[i]);
  }
  return sum;
}

/**
 * Both updates on rewards {0, 1}: what a response is worth by its reward alone.
 * @param {number} p pass rate, in (0, 1)
 * @param {number} tau temperature on rewards {0, 1}
 * @param {"pmd-mean"|"pmd-part"} method
 * @returns {{right: number, wrong: number, lam: number}} log ratios, nats; lam is NaN for PMD-part
 */
export function binary(p, tau, method) {
  const solution = (method === "pmd-mean" ? pmdMean : pmdPart)([p, 1 - p], [1, 0], tau);
  return { right: solution.logRatio[0], wrong: solution.logRatio[1], lam: solution.lam ?? NaN };
}
