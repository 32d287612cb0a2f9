// What the sliders of the atlas read: the share of the gap that one exact step closes, between the settings that were asked.

const logit = (p) => Math.log(p / (1 - p));

/** Place of a value in an ascending grid, even in `scale`: the index below it, and the share of the way to the next. */
export function place(grid, value, scale) {
  let k = 0;
  while (k < grid.length - 2 && value >= grid[k + 1]) k += 1;
  const part = (scale(value) - scale(grid[k])) / (scale(grid[k + 1]) - scale(grid[k]));
  return [k, Math.min(1, Math.max(0, part))];
}

/**
 * Share of the gap to 1 that one exact step of a loss closes; null where a neighbour never rests.
 * @param {{rates: number[], taus: number[], losses: Object}} tables docs/explore/atlas/numbers.json
 * @param {string} name of the loss
 * @param {number} tau reward units; a loss without tau does not look at it
 * @param {number} p pass rate
 */
export function etaAt({ rates, taus, losses }, name, tau, p) {
  const [k, part] = place(rates, p, logit);
  const between = (low, high, share) => (low === null || high === null ? null : low + share * (high - low));
  const along = (row) => (part === 0 ? row[k] : between(row[k], row[k + 1], part));
  const { eta, eta_by_tau: byTau } = losses[name];
  if (!Object.keys(byTau).length) return along(eta);
  const rows = taus.map((each) => byTau[String(each)]); // a script puts the key "1" first
  const [j, share] = place(taus, tau, Math.log);
  return share === 0 ? along(rows[j]) : between(along(rows[j]), along(rows[j + 1]), share);
}
