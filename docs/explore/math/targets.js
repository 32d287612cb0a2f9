// Leave-one-out targets of a group of draws, and their exact squared error, rewards {0, 1}. No DOM and no drawing here.
// The twin of pmdkit.theory: target_errors.py, binary_rewards.py. Golden-tested against it.

import { binary } from "./pmd.js";

/**
 * Targets of a group with `successes` of n right: what each right and each wrong response is told, nats.
 *
 * PMD-mean: (r_i - mean of the others) / tau. PMD-part: r_i/tau - log of the mean of e^(r_j/tau) of the others.
 * @param {number} successes
 * @param {number} n responses, >= 2
 * @param {number} tau temperature on rewards {0, 1}
 * @param {"pmd-mean"|"pmd-part"} method
 * @returns {{right: number, wrong: number}} NaN where the group has no such response
 */
export function groupTargets(successes, n, tau, method) {
  const own = (reward) => {
    const peers = successes - reward;
    if (peers < 0 || peers > n - 1) return NaN;
    if (method === "pmd-mean") return (reward - peers / (n - 1)) / tau;
    return reward / tau - logPartition(peers / (n - 1), tau);
  };
  return { right: own(1), wrong: own(0) };
}

/** log(1 + (e^(1/tau) - 1) share): the log mean of e^(r/tau) over peers of which a share is right; nats. */
export function logPartition(share, tau) {
  if (share === 0) return 0;
  if (1 / tau <= 600) return Math.log1p(share * Math.expm1(1 / tau));
  return 1 / tau + Math.log(share + (1 - share) * Math.exp(-1 / tau));
}

/** The probabilities of 0 ... m successes at pass rate p; normalised, which takes out rounding. */
export function binomial(m, p) {
  if (p <= 0 || p >= 1) return Array.from({ length: m + 1 }, (_, k) => Number(k === (p <= 0 ? 0 : m)));
  const logOdds = Math.log(p) - Math.log1p(-p);
  const logs = [0]; // up to a constant: each term from the one before
  for (let k = 1; k <= m; k++) logs.push(logs[k - 1] + Math.log((m - k + 1) / k) + logOdds);
  const top = Math.max(...logs);
  const terms = logs.map((value) => Math.exp(value - top));
  const total = terms.reduce((sum, term) => sum + term, 0);
  return terms.map((term) => term / total);
}

/** log Z minus its estimate from peers of which a share is right, nats. */
export function partGap(p, tau, share) {
  return logPartition(p, tau) - logPartition(share, tau);
}

/** w_+ and w_-: how far Delta/tau, the target of endless draws, overshoots PMD-mean's own solution; nats. */
export function shortfall(p, tau) {
  const best = binary(p, tau, "pmd-mean");
  const x = best.lam / (tau * tau);
  return { right: x * Math.exp(Math.min(best.right, 709)), wrong: x * Math.exp(best.wrong) };
}

/**
 * Expected squared distance of the targets to the ideal log ratios, nats^2: exact, over the binomial of the peers.
 * @param {number} p pass rate
 * @param {number} n responses per prompt, >= 2
 * @param {number} tau temperature on rewards {0, 1}
 * @param {"pmd-mean"|"pmd-part"} method
 * @returns {{right: number, wrong: number, mean: number}} given the own reward, and over both
 */
export function targetError(p, n, tau, method) {
  let right;
  let wrong;
  if (method === "pmd-mean") {
    const extra = shortfall(p, tau);
    const noise = (p * (1 - p)) / ((n - 1) * tau * tau);
    right = noise + extra.right ** 2;
    wrong = noise + extra.wrong ** 2;
  } else {
    right = wrong = binomial(n - 1, p).reduce((sum, weight, s) => sum + weight * partGap(p, tau, s / (n - 1)) ** 2, 0);
  }
  return { right, wrong, mean: p * right + (1 - p) * wrong };
}

/**
 * Mean squared error of the targets of one group with `successes` of n right, nats^2: the paper's bar Delta^2.
 */
export function groupError(p, n, tau, method, successes) {
  let own;
  if (method === "pmd-mean") {
    const extra = shortfall(p, tau);
    own = (reward) => (p - (successes - reward) / (n - 1)) / tau + (reward === 1 ? extra.right : extra.wrong);
  } else own = (reward) => partGap(p, tau, (successes - reward) / (n - 1));
  const sum = (reward, count) => (count === 0 ? 0 : count * own(reward) ** 2);
  return (sum(1, successes) + sum(0, n - successes)) / n;
}

/** The probability of a group without success, of one success exactly, and of several, [silent, lone, more]. */
export function kinds(p, n) {
  const [none, one] = binomial(n, p);
  return [none, one, 1 - none - one];
}

/**
 * Random numbers in [0, 1) from a seed, the same on every machine (Mulberry32). `next()` draws, `state` can be kept.
 */
export class Dice {
  constructor(seed) {
    this.state = seed >>> 0;
  }

  next() {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let t = this.state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  }

  /** Rewards of n responses, each 1 with probability p. */
  group(p, n) {
    return Array.from({ length: n }, () => Number(this.next() < p));
  }

  /** How many of n responses are right. */
  successes(p, n) {
    let count = 0;
    for (let i = 0; i < n; i++) count += this.next() < p;
    return count;
  }
}
