// A reader's own loss: a formula of r, A, s and tau, parsed into its value and its slope in s, and never run as code.

const NAMES = ["r", "A", "s", "tau"];
const LONGEST = 200; // characters

// A value is [number, slope in s].
const FUNCTIONS = {
  exp: [1, ([x, dx]) => [Math.exp(x), Math.exp(x) * dx]],
  log: [1, ([x, dx]) => [Math.log(x), dx / x]],
  sqrt: [1, ([x, dx]) => [Math.sqrt(x), dx / (2 * Math.sqrt(x))]],
  abs: [1, ([x, dx]) => [Math.abs(x), Math.sign(x) * dx]],
  stop: [1, ([x]) => [x, 0]],
  min: [2, (a, b) => (a[0] <= b[0] ? a : b)],
  max: [2, (a, b) => (a[0] >= b[0] ? a : b)],
  clip: [3, (x, low, high) => (x[0] < low[0] ? low : x[0] > high[0] ? high : x)],
};
const SIGNS = {
  "+": (a, b) => [a[0] + b[0], a[1] + b[1]],
  "-": (a, b) => [a[0] - b[0], a[1] - b[1]],
  "*": (a, b) => [a[0] * b[0], a[1] * b[0] + a[0] * b[1]],
  "/": (a, b) => [a[0] / b[0], (a[1] * b[0] - a[0] * b[1]) / b[0] ** 2],
  "^": (a, b) => [
    a[0] ** b[0],
    (a[1] && b[0] * a[0] ** (b[0] - 1) * a[1]) + (b[1] && Math.log(a[0]) * a[0] ** b[0] * b[1]),
  ],
};

/**
 * @param {string} text such as "(A - tau*s)^2 / (2*tau)": + - * / ^, brackets, numbers, the names and functions above
 * @returns {(given: {r: number, A: number, s: number, tau: number}) => [number, number]} the loss and its slope in s
 * @throws {Error} with one sentence for the reader
 */
export function parse(text) {
  if (text.length > LONGEST) throw new Error(`The formula has ${text.length} characters; ${LONGEST} are read at most.`);
  const words = [...text.replace(/τ/g, "tau").matchAll(/(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|[a-z]+|\S/gi)];
  let at = 0;
  const seen = () => words[at]?.[0];
  const refuse = (wanted) => {
    const found = at < words.length ? `"${seen()}" at character ${words[at].index + 1}` : "its end";
    throw new Error(`The formula has ${found} where ${wanted} is wanted.`);
  };
  const take = (word) => (seen() === word ? (at += 1) : refuse(`"${word}"`));

  function signs(inner, known) {
    let left = inner();
    while (known.includes(seen())) {
      const [rule, before] = [SIGNS[words[at++][0]], left];
      const right = inner();
      left = (given) => rule(before(given), right(given));
    }
    return left;
  }
  const sum = () => signs(() => signs(factor, ["*", "/"]), ["+", "-"]);

  function factor() { // -s^2 is -(s^2), 2^-s is 2^(-s)
    if (seen() === "-") {
      at += 1;
      const inner = factor();
      return (given) => inner(given).map((x) => -x);
    }
    const base = atom();
    if (seen() !== "^") return base;
    at += 1;
    const power = factor();
    return (given) => SIGNS["^"](base(given), power(given));
  }

  function atom() {
    const word = seen();
    if (word === "(") {
      at += 1;
      const inner = sum();
      take(")");
      return inner;
    }
    if (/^[\d.]+./.test(word) || /^\d$/.test(word)) {
      at += 1;
      return () => [Number(word), 0];
    }
    if (NAMES.includes(word)) {
      at += 1;
      return (given) => [given[word], Number(word === "s")];
    }
    if (!Object.hasOwn(FUNCTIONS, word ?? "")) {
      refuse(`a number, ${[...NAMES, ...Object.keys(FUNCTIONS)].join(", ")} or "("`);
    }
    const [count, rule] = FUNCTIONS[word];
    at += 1;
    const inner = [];
    for (let i = 0; i < count; i += 1) {
      take(i ? "," : "(");
      inner.push(sum());
    }
    take(")");
    return (given) => rule(...inner.map((each) => each(given)));
  }

  const whole = sum();
  if (at < words.length) refuse("a sign or its end");
  return whole;
}
