// Both updates of the simplex explorer: the steps at one temperature, and where one step ends at every temperature.

import { iterate } from "../math/geometry.js";
import { pmdMean, pmdPart } from "../math/pmd.js";

export const START = { pi: [0.6, 0.3, 0.1], r: [0, 0.7, 1], tau: 0.2, k: 1, show: "kl" };
export const TAU = [0.005, 5]; // reward units; the rewards lie in [0, 1]
const TAUS = Array.from({ length: 61 }, (_, i) => 100 * (0.003 / 100) ** (i / 60)); // of the dotted lines

/** @returns {Function} `solve(state)`: what `triangle` draws; the dotted lines are kept until policy or rewards change */
export function solver() {
  let cached = { key: "", sweeps: null };
  return ({ pi, r, tau, k }) => {
    const key = [...pi, ...r].join();
    if (cached.key !== key) {
      const sweeps = Object.fromEntries([["part", pmdPart], ["mean", pmdMean]].map(([method, update]) =>
        [method, TAUS.map((each) => update(pi, r, each).probs)]));
      cached = { key, sweeps };
    }
    const paths = { part: iterate(pmdPart, pi, r, tau, k), mean: iterate(pmdMean, pi, r, tau, k) };
    return { paths, sweeps: cached.sweeps, lam: paths.mean[1]?.lam ?? 0 };
  };
}
