// pmdkit's loop on the toy task modular-sum: draw, grade, credit, update. Nothing is drawn on the page here.
// The slopes and advantages of the objectives are those of objectives.js and advantages.js.

import { DEFAULTS, rowOf } from "../losses/state.js";
import { parse } from "./formula.js";
import { coefficient, minimum } from "./objectives.js";
import { binary } from "./pmd.js";
import { MODULUS, VOCABULARY, rightAnswer, tokensOf } from "./task.js";
import { AdamW, SIZES, Transformer, prefixTree } from "./transformer.js";

const PROMPTS = 128; // of a step
const EVERY = Array.from({ length: MODULUS ** 2 }, (_, prompt) => prompt);
const TREE = prefixTree(EVERY.map(tokensOf));

/** Numbers in [0, 1) from a seed, by the generator mulberry32, and standard normal ones from them. */
export function random(seed) {
  let state = Math.imul(seed, 0x9e3779b1);
  const uniform = () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  return { uniform, normal: () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform()) };
}

/** Probabilities from log-probabilities, without what nucleus sampling leaves out: the least likely, beyond topP. */
export function nucleus(logp, topP) {
  const probs = Array.from(logp, Math.exp);
  if (topP >= 1) return probs;
  let sum = 0;
  for (const y of probs.map((_, i) => i).sort((i, j) => probs[j] - probs[i])) {
    if (sum >= topP) probs[y] = 0;
    sum += probs[y];
  }
  return probs.map((p) => p / sum);
}

/** The first answer whose cumulative probability exceeds u; never one of probability 0. */
function draw(probs, u) {
  let [sum, last] = [0, 0];
  for (let y = 0; y < probs.length; y += 1) {
    if (probs[y] === 0) continue;
    [sum, last] = [sum + probs[y], y];
    if (sum > u) break;
  }
  return last;
}

export class Learner {
  /** @param {Object} options objective, formula, tau, group, ministeps, lr, temperature, top_p, gain, seed */
  constructor(options) {
    const { uniform, normal } = random(options.seed);
    this.uniform = uniform;
    this.model = new Transformer({ ...SIZES, vocabulary: VOCABULARY, gain: options.gain }, normal);
    this.optimizer = new AdamW(this.model.flat.length);
    this.steps = 0;
    this.change(options);
  }

  /** Takes new options; seed and gain count at the start alone. A formula that does not parse changes nothing. */
  change(options) {
    this.own = options.objective === "own" ? parse(options.formula) : null;
    this.options = options;
    this.policy = this.model.forward(TREE, options.temperature); // [nodes, VOCABULARY], of all prompts, exact
  }

  /** Log-probabilities of the answers to a prompt. */
  answers(prompt, policy = this.policy) {
    return policy.subarray(TREE.leaf[prompt] * VOCABULARY, (TREE.leaf[prompt] + 1) * VOCABULARY);
  }

  /** The row that the objective sees of a right or wrong answer, of a group with so many right ones. */
  row(own, right) {
    const { objective, tau, group: size } = this.options;
    const group = { mode: "group", tau, size, right, own: own ? "right" : "wrong" };
    return rowOf(this.own ? "pmd-mean" : objective, { ...DEFAULTS, ...group });
  }

  /** d loss / d log pi of an answer. */
  slope(s, row, reward) {
    if (!this.own) return coefficient(this.options.objective, s, row);
    const [loss, slope] = this.own({ r: reward, A: row.advantage, s, tau: row.tau });
    if (Number.isFinite(slope)) return slope;
    const at = `r = ${reward}, A = ${row.advantage.toFixed(3)}, s = ${s.toFixed(3)}`;
    throw new Error(`Your loss is ${loss} with slope ${slope} at ${at}.`);
  }

  /** One step. If a number is none any more, an Error in one sentence, and the weights stay as they were. */
  step() {
    const { model, optimizer } = this;
    const kept = [model.flat.slice(), optimizer.mean.slice(), optimizer.square.slice(), optimizer.steps];
    const was = { old: this.policy, was: { rate: this.rate(), exact: this.exact() }, groups: this.rollout() };
    try {
      const { ministeps } = this.options;
      for (let k = 0; k < ministeps; k += 1) {
        const [from, to] = [k, k + 1].map((part) => Math.floor((PROMPTS * part) / ministeps));
        this.update(was.groups.slice(from, to));
      }
      this.policy = model.forward(TREE, this.options.temperature);
      if (!this.policy.every(Number.isFinite)) {
        throw new Error("The update went too far: probabilities are no longer numbers.");
      }
      this.steps += 1;
      Object.assign(this, was);
    } catch (error) {
      model.flat.set(kept[0]);
      Object.assign(optimizer, { mean: kept[1], square: kept[2], steps: kept[3] });
      this.policy = model.forward(TREE, this.options.temperature);
      throw error;
    }
  }

  /** Groups of answers to PROMPTS prompts, each { prompt, drawn: [{ answer, old, reward, row }] }. */
  rollout() {
    return Array.from({ length: PROMPTS }, () => {
      const prompt = Math.floor(this.uniform() * MODULUS ** 2);
      const logp = this.answers(prompt);
      const probs = nucleus(logp, this.options.top_p);
      const drawn = Array.from({ length: this.options.group }, () => draw(probs, this.uniform()));
      const right = drawn.filter((answer) => answer === rightAnswer(prompt)).length;
      const rows = [right < drawn.length ? this.row(false, right) : null, right > 0 ? this.row(true, right) : null];
      const graded = (answer) => {
        const reward = Number(answer === rightAnswer(prompt));
        return { answer, old: logp[answer], reward, row: rows[reward] };
      };
      return { prompt, drawn: drawn.map(graded) };
    });
  }

  /** One ministep: the mean of the loss over its own prompts. Equal answers to a prompt share a node of the tree. */
  update(groups) {
    const tree = prefixTree(groups.map(({ prompt }) => tokensOf(prompt)));
    const logp = this.model.forward(tree, this.options.temperature);
    const slopes = new Float32Array(logp.length);
    groups.forEach(({ drawn }, n) => {
      for (const { answer, old, reward, row } of drawn) {
        const at = tree.leaf[n] * VOCABULARY + answer;
        slopes[at] += this.slope(logp[at] - old, row, reward) / groups.length / drawn.length;
      }
    });
    this.optimizer.step(this.model.flat, this.model.backward(slopes), this.options.lr);
  }

  /** The exact probability of the right answer, averaged over all prompts. */
  rate() {
    return average(EVERY.map((prompt) => Math.exp(this.answers(prompt)[rightAnswer(prompt)])));
  }

  /** The pass rate to which an exact step would take this policy; null where no formula is known. */
  exact() {
    const { objective, tau } = this.options;
    if (objective !== "pmd-mean" && objective !== "pmd-part") return null;
    const moved = (p) => (p > 0 && p < 1 ? p * Math.exp(binary(p, tau, objective).right) : p);
    return average(EVERY.map((prompt) => moved(Math.exp(this.answers(prompt)[rightAnswer(prompt)]))));
  }

  /** What the page shows: exact over all prompts, but for `groups`, which are those that the last step drew. */
  report() {
    const probs = (policy) => EVERY.map((prompt) => Array.from(this.answers(prompt, policy), Math.exp));
    const policy = probs(this.policy);
    const groups = {};
    for (const { prompt, drawn } of this.groups ?? []) {
      groups[prompt] = drawn.map(({ answer, reward, row }) => (
        { answer, reward, end: this.own ? null : minimum(this.options.objective, row) }
      ));
    }
    const entropy = average(policy.map((each) => -each.reduce((sum, p) => sum + (p && p * Math.log(p)), 0)));
    const old = probs(this.old ?? this.policy);
    return { step: this.steps, rate: this.rate(), was: this.was, entropy, policy, old, groups };
  }
}

const average = (values) => values.reduce((sum, x) => sum + x, 0) / values.length;
