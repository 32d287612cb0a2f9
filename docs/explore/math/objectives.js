// The losses of pmdkit/objectives for one response, as functions of its log-ratio: value, slope, minimum, flat zones.
// Nothing is drawn here. tests/explore/test_losses.py compares every number with torch.
//
// A row is { advantage, tau, length, group, anchor, ...options }:
//   advantage  reward units          length  tokens, the log-ratio spread evenly over them
//   tau        reward units          group   responses of the prompt; the others stay at pi_old (REBEL, TB)
//   anchor     log pi_old/pi_ref of the response, nats (TB)
// Losses are sums over tokens, log pi_old is 0, and GSPO's is multiplied by the length that it divides by: so the first
// step of all of them is -advantage.

/** Log-ratio bounds of a clip: (log(1 - low), log(1 + high)); low = 1 is no lower bound. */
export function logBounds(low, high) {
  return [low < 1 ? Math.log1p(-low) : -Infinity, Math.log1p(high)];
}

const regression = {
  loss: (s, row) => (row.advantage - row.tau * s) ** 2 / (2 * row.tau),
  coefficient: (s, row) => row.tau * s - row.advantage,
  minimum: (row) => row.advantage / row.tau,
};

/**
 * Of the group only this response moves, by u: its distance to the mean log-ratio is u (G - 1) / G, that of each other
 * -u / G. The loss is the whole group's, less what the others have at pi_old, so that the coefficient is its slope.
 */
function centred(shift) {
  const share = (row) => (row.group - 1) / row.group;
  return {
    loss(s, row) {
      const u = s + shift(row);
      return row.advantage ** 2 / (2 * row.tau) - row.advantage * u + (row.tau * u * u * share(row)) / 2;
    },
    coefficient: (s, row) => row.tau * (s + shift(row)) * share(row) - row.advantage,
    minimum: (row) => row.advantage / (row.tau * share(row)) - shift(row),
  };
}

/** The ratio counts no further in the direction that the advantage asks for, for each token or each mean of tokens. */
const clipped = {
  loss: (s, row) => -row.length * row.advantage * Math.exp(bounded(s / row.length, row)),
  coefficient(s, row) {
    const t = s / row.length;
    return bounded(t, row) === t ? -row.advantage * Math.exp(t) : 0;
  },
  flat(row) {
    const [low, high] = logBounds(row.clip_low, row.clip_high);
    if (row.advantage > 0) return [row.length * high, Infinity];
    return row.advantage < 0 && low > -Infinity ? [-Infinity, row.length * low] : null;
  },
};

function bounded(t, row) {
  const [low, high] = logBounds(row.clip_low, row.clip_high);
  return row.advantage >= 0 ? Math.min(t, high) : Math.max(t, low);
}

const cispo = {
  loss: (s, row) => -cispoWeight(s, row) * row.advantage * s,
  coefficient: (s, row) => -cispoWeight(s, row) * row.advantage,
};

function cispoWeight(s, row) {
  const [low, high] = logBounds(row.clip_low, row.clip_high);
  return Math.exp(Math.min(Math.max(s / row.length, low), high));
}

const chi2 = {
  loss: (s, row) => (row.advantage - row.tau * link(s, row)) ** 2 / (2 * row.tau),
  coefficient(s, row) {
    const k = row.kl_share;
    const steep = k < 1 ? k + (1 - k) * Math.exp(s) : 1;
    return (row.tau * link(s, row) - row.advantage) * steep;
  },
  minimum: (row) => inverseLink(row.advantage / row.tau, row.kl_share),
};

function link(s, row) {
  const k = row.kl_share;
  return k < 1 ? k * s + (1 - k) * Math.expm1(s) : s;
}

/** The s at which k s + (1 - k)(e^s - 1) is t, or null where there is none. Newton from the right: the link is convex. */
export function inverseLink(t, k) {
  if (k === 1) return t;
  if (k === 0) return t > -1 ? Math.log1p(t) : null;
  let s = t > 0 ? Math.min(t, Math.log1p(t / (1 - k))) : t;
  for (let i = 0; i < 200; i += 1) {
    const step = (k * s + (1 - k) * Math.expm1(s) - t) / (k + (1 - k) * Math.exp(s));
    s -= step;
    if (Math.abs(step) <= 1e-15 * (1 + Math.abs(s))) break;
  }
  return s;
}

const rloo = {
  loss: (s, row) => -row.advantage * s,
  coefficient: (s, row) => -row.advantage,
};

const FORMS = {
  "pmd-mean": regression,
  "pmd-part": regression,
  rloo,
  grpo: clipped,
  "dr-grpo": clipped,
  dapo: clipped,
  gspo: clipped,
  cispo,
  "chi2-po": chi2,
  rebel: centred(() => 0),
  tb: centred((row) => row.anchor ?? 0),
  dro: regression,
};

export const NAMES = Object.keys(FORMS);

/** Loss of the response at log-ratio s. */
export function loss(name, s, row) {
  return FORMS[name].loss(s, row);
}

/** d loss / d log pi(y|x) at log-ratio s; below 0 the response is raised. */
export function coefficient(name, s, row) {
  return FORMS[name].coefficient(s, row);
}

/** The log-ratio at which the push ends and turns round, nats; null where there is none. */
export function minimum(name, row) {
  return FORMS[name].minimum ? FORMS[name].minimum(row) : null;
}

/** The log-ratios [from, to] at which the push is exactly 0, nats; null where there are none. */
export function flat(name, row) {
  return FORMS[name].flat ? FORMS[name].flat(row) : null;
}
