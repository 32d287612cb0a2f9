// When each step generates and updates, given how long both take, and how old the policy of each ministep's responses is.
// Port of planner/overlap.py.

/**
 * Every step's place in time: step s, from 1, rolls out with the version after step s - 1 - lag.
 * @param {number} generating seconds of a rollout batch
 * @param {number} training seconds of scoring and updates of a step
 * @param {number} steps
 * @param {number} lag 0 rolls out and updates in turns
 * @param {boolean} apart on accelerators of their own; else one waits for the other whatever the lag
 * @returns {{generation: number[][], update: number[][], version: number[]}} [begin, end] of each step, seconds
 */
export function timeline(generating, training, steps, lag, apart) {
  const [generation, update, version] = [[], [], []];
  for (let s = 0; s < steps; s += 1) {
    version.push(Math.max(s - lag, 0));
    const enginesFree = s ? generation[s - 1][1] : 0;
    const published = version[s] ? update[version[s] - 1][1] : 0;
    const trainerFree = s ? update[s - 1][1] : 0;
    const first = Math.max(enginesFree, apart ? published : trainerFree);
    generation.push([first, first + generating]);
    const second = Math.max(first + generating, trainerFree);
    update.push([second, second + training]);
  }
  return { generation, update, version };
}

/**
 * Updates between the policy that wrote the responses of a step and each update that learns from them.
 * @param {number} step from 0; the first `lag` steps have seen fewer
 * @param {number} updates of one step, ministeps times passes
 * @returns {number[]} one age per update, in updates
 */
export function ages(step, lag, updates) {
  const behind = step - Math.max(step - lag, 0);
  return Array.from({ length: updates }, (_, k) => behind * updates + k);
}

/** The largest age once every step has its full lag. */
export function staleness(lag, ministeps, passes) {
  return (lag + 1) * ministeps * passes - 1;
}
