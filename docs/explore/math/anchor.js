// The anchor law: how hard the log partition of a group pushes away from pi_old, rewards {0, 1}. No DOM, no drawing here.
// The twin of pmdkit.theory: anchor_law.py. Golden-tested against it.

import { binomial, logPartition } from "./targets.js";

/** c_n: how far PMD-part's baseline lies above the mean reward, on average over the peers of groups of n. */
export function anchor(p, tau, n) {
  return binomial(n - 1, p).reduce((sum, weight, s) => {
    const share = s / (n - 1);
    return sum + weight * Math.min(1 - share, Math.max(0, tau * logPartition(share, tau) - share));
  }, 0);
}

/** The tau at which the push is as strong as the pull: c_n(tau) = tau; 0 where there is no push. */
export function threshold(p, n) {
  let [low, high] = [Math.log(1e-300), 0];
  for (let k = 0; k < 64; k++) {
    const middle = (low + high) / 2;
    if (anchor(p, Math.exp(middle), n) > Math.exp(middle)) low = middle;
    else high = middle;
  }
  return low === Math.log(1e-300) ? 0 : Math.exp(high);
}

/** What M stale ministeps make of a direction that the reward says nothing about: a factor. `rate` is lr times Fisher. */
export function growth(c, tau, rate, ministeps) {
  return (1 + rate * (c - tau)) ** ministeps;
}
