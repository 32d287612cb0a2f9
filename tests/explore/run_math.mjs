// Runs the mathematics of the explorables in Node: calls in as JSON on stdin, results out as JSON on stdout.
// {"module": "math/pmd", "call": "pmdMean", "args": [...]}; "test" is the module below. NaN and infinities are strings.

import { readFileSync } from "node:fs";

const load = (name) => import(new URL(`../../docs/explore/${name}.js`, import.meta.url));

const test = {
  /** Both methods' iterates: functions cannot travel as JSON. */
  async both(pi, reward, tau, steps) {
    const { pmdMean, pmdPart } = await load("math/pmd");
    const { iterate } = await load("math/geometry");
    return { mean: iterate(pmdMean, pi, reward, tau, steps), part: iterate(pmdPart, pi, reward, tau, steps) };
  },

  /** How often each count of successes came up. */
  async histogram(seed, p, n, groups) {
    const { Dice } = await load("math/targets");
    const dice = new Dice(seed);
    const counts = Array(n + 1).fill(0);
    for (let k = 0; k < groups; k++) counts[dice.successes(p, n)] += 1;
    return counts;
  },
};

const modules = { test };
const results = [];
for (const { module, call, args } of JSON.parse(readFileSync(0, "utf8"))) {
  modules[module] ??= await load(module);
  results.push(await modules[module][call](...args));
}
const readable = (_, value) => (typeof value === "number" && !Number.isFinite(value) ? String(value) : value);
process.stdout.write(JSON.stringify(results, readable));
