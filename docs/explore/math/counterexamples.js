// The numbers beside the sliders of the page of the paper, one function per counterexample. No DOM here.
// The twin of docs/generate/counterexamples.py, which computes the same with pmdkit. Golden-tested against it.

import { binary } from "./pmd.js";
import { groupError, logPartition, targetError } from "./targets.js";

/** epsilon_n(p, delta): how far all leave-one-out means stray from the pass rate, with probability 1 - delta. */
export function epsilon(p, n, delta) {
  const logs = Math.log((4 * n) / delta);
  return Math.sqrt((2 * p * (1 - p) * logs) / (n - 1)) + (2 * logs) / (3 * (n - 1));
}

/** A group with one success where two in a thousand groups have one: inside the event, and above the bound. */
function oneSuccess(n, delta, tau) {
  const p = (2 * delta) / n;
  const limit = epsilon(p, n, delta);
  const error = groupError(p, n, tau, "pmd-mean", 1);
  const bound = (limit ** 2 + p * (1 - p) ** 2) / tau ** 2;
  return {
    rate: p,
    chance: n * p * Math.exp((n - 1) * Math.log1p(-p)),
    distance: 1 / (n - 1) - p,
    limit,
    error,
    bound,
    ratio: error / bound,
  };
}

/** Id of the ledger -> (values of the sliders, constants from the page) -> numbers by row. */
export const NUMBERS = {
  "remark:exponents": ({ p, tau }) => {
    const left = (method) => (1 - p) * Math.exp(binary(p, tau, method).wrong); // 1 - p rho_+, by normalisation
    return {
      mean: left("pmd-mean"),
      "mean meant": Math.exp(-p / tau),
      "mean stated": Math.exp(p / tau),
      part: left("pmd-part"),
      "part meant": Math.exp(-1 / tau),
      "part stated": Math.exp(1 / tau),
    };
  },

  "prop:tgt_err_clean:a": ({ n, delta, tau }) => oneSuccess(n, delta, tau),

  "eq:tgt_err_mean_clean": ({ n, delta, share }) => oneSuccess(n, delta, (share * 2 * delta) / n),

  "text:gains": ({ row }, { scores }) => {
    const { own, base, stated } = scores[row - 1];
    const gains = own.map((score, k) => score - base[k]);
    return { gain24: gains[0], stated24: stated[0], gain25: gains[1], stated25: stated[1] };
  },

  "code:target_clamp": ({ successes, tau }, { cap, draws }) => {
    const logZ = logPartition((successes - 1) / (draws - 1), tau / 2) - 1 / tau; // rewards of +-1: a gap of 2
    const formula = 1 - tau * logZ;
    const floored = 1 - tau * Math.max(logZ, 1 / tau - cap);
    return { formula, floored, ratio: formula / floored };
  },

  "app:factor_half": ({ change, tau, length }, { advantage }) => {
    const residual = change - advantage / tau;
    const weight = tau / length;
    const main = (weight * residual ** 2) / 2;
    return {
      main,
      twice: 2 * main,
      appendix: weight * residual ** 2,
      slope: weight * residual,
      "slope appendix": 2 * weight * residual,
    };
  },
};
