// What each objective makes of a group of right and wrong responses: the advantage of one of them. No loss here.
// tests/explore/test_losses.py compares every number with `advantage(groups)` of pmdkit/objectives.
//
// A group is { size, right, own, rewards: [wrong, right] }: so many responses, of which so many are right, seen from
// one that is right (own = true) or wrong. Rewards are [0, 1] or [-1, 1].

/** Whether the group holds a response of that kind at all. */
export function exists(group) {
  return group.size >= 2 && (group.own ? group.right >= 1 : group.right <= group.size - 1);
}

const reward = (group) => group.rewards[group.own ? 1 : 0];

/** Right and wrong responses among the others. */
function peers(group) {
  return [group.size - group.right - (group.own ? 0 : 1), group.right - (group.own ? 1 : 0)];
}

function mean(counts, rewards) {
  return (counts[0] * rewards[0] + counts[1] * rewards[1]) / (counts[0] + counts[1]);
}

const peerMean = (group) => mean(peers(group), group.rewards);
const groupMean = (group) => mean([group.size - group.right, group.right], group.rewards);

/** tau log of the mean of e^{r / tau} over the others, without overflow. */
function peerPartition(group, tau) {
  const counts = peers(group);
  const top = counts[1] > 0 ? group.rewards[1] : group.rewards[0];
  const sum = counts[0] * Math.exp((group.rewards[0] - top) / tau) + counts[1] * Math.exp((group.rewards[1] - top) / tau);
  return top + tau * Math.log(sum / (group.size - 1));
}

/** (reward - mean) / population std; exactly 0 where all rewards are equal. */
function standardised(group) {
  const p = group.right / group.size;
  return p > 0 && p < 1 ? ((group.own ? 1 : 0) - p) / Math.sqrt(p * (1 - p)) : 0;
}

const RULES = {
  "pmd-mean": (group) => reward(group) - peerMean(group),
  "pmd-part": (group, row) => reward(group) - peerPartition(group, row.tau),
  rloo: (group) => reward(group) - peerMean(group),
  grpo: standardised,
  "dr-grpo": (group) => reward(group) - groupMean(group),
  dapo: standardised,
  gspo: standardised,
  cispo: standardised,
  "chi2-po": (group) => reward(group) - peerMean(group),
  rebel: (group) => reward(group) - groupMean(group),
  tb: (group) => reward(group) - groupMean(group),
  dro: (group, row) => reward(group) - (row.value === "group" ? peerMean(group) : row.value),
};

/** The advantage that an objective gives the response, reward units (a pure number where it is standardised). */
export function advantage(name, group, row) {
  return RULES[name](group, row);
}
