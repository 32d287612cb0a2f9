// The pictures of "Train one": the table of answers, the curve over the band, and one prompt before and after a step.

import { axis, html, line, linear, set, svg, text } from "../common/svg.js";
import { MODULUS, VOCABULARY, rightAnswer, tokensOf } from "../math/task.js";

const DIGITS = Array.from({ length: MODULUS }, (_, digit) => digit);
export const nameOf = (answer) => (answer < MODULUS ? String(answer) : "end");

/**
 * The likeliest answer to each prompt: right ones are round, wrong ones square; the surer, the stronger the colour.
 * @param {(prompt: number) => void} onPick by a press, or by the arrows from the cell before
 * @returns {{node: HTMLElement, draw: (policy: number[][], chosen: number) => void}}
 */
export function answers(onPick) {
  const head = (digit, role) => html("span", { role, class: "tr-head" }, String(digit));
  const node = html("div", { class: "tr-grid", role: "grid", "aria-label": "the likeliest answer to a + b modulo 10" });
  node.append(html("div", { role: "row" }, head("+", "columnheader"), ...DIGITS.map((b) => head(b, "columnheader"))));
  const cells = DIGITS.flatMap((a) => {
    const cell = (b) => html("button", { type: "button", role: "gridcell", class: "tr-cell", "data-prompt": 10 * a + b });
    const row = DIGITS.map(cell);
    node.append(html("div", { role: "row" }, head(a, "rowheader"), ...row));
    return row;
  });
  node.addEventListener("click", ({ target }) => target.dataset.prompt && onPick(Number(target.dataset.prompt)));
  node.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!move) return;
    event.preventDefault();
    const from = tokensOf(Number(event.target.dataset.prompt));
    const [a, b] = from.map((digit, i) => (digit + move[i] + MODULUS) % MODULUS);
    cells[10 * a + b].focus();
    onPick(10 * a + b);
  });
  return {
    node,
    draw(policy, chosen) {
      policy.forEach((probs, prompt) => {
        const sure = Math.max(...probs);
        const answer = probs.indexOf(sure);
        const right = answer === rightAnswer(prompt);
        const [a, b] = tokensOf(prompt);
        text(cells[prompt], answer < MODULUS ? String(answer) : "·");
        set(cells[prompt], {
          class: `tr-cell ${right ? "tr-right" : "tr-wrong"}`, style: `--sure: ${Math.round(100 * sure)}%`,
          tabindex: prompt === chosen ? 0 : -1, "aria-selected": String(prompt === chosen),
          "aria-label": `${a} + ${b}: ${nameOf(answer)}, ${right ? "right" : "wrong"}, ${sure.toFixed(2)}`,
        });
      });
    },
  };
}

/** The pass rate by step over the band of recorded runs; earlier runs of the page stay as thin lines. */
export function curve(band) {
  const [still, lines] = [svg("g", {}), svg("g", {})];
  let [x, y, box, most] = [null, null, null, 0];
  const scale = (last) => {
    most = last;
    x = linear([0, most], [box.left, box.right]);
    const edge = [...band.high.map((p, i) => [x(i), y(p)]), ...band.low.map((p, i) => [x(i), y(p)]).reverse()];
    still.replaceChildren(
      axis("bottom", x, box, { count: 5, label: "step" }),
      axis("left", y, box, { count: 4, label: "pass rate, exact over all 100 sums" }),
      svg("path", { class: "tr-band", d: `${line(edge)}Z` }),
      svg("text", { class: "ex-quiet", x: box.right, y: y(0.06), "text-anchor": "end" },
        `grey: ${band.runs} runs of pmdkit, lowest to highest`),
    );
  };
  return {
    layout(node, width, height) {
      box = { left: 34, right: width - 14, top: 22, bottom: height - 40 };
      y = linear([0, 1], [box.bottom, box.top]);
      node.replaceChildren(still, lines);
      scale(100);
    },
    draw(runs) {
      const last = Math.max(100, ...runs.map((run) => run.at(-1)?.[0] ?? 0));
      if (last > most || (most > 100 && last === 100)) scale(100 * Math.ceil(last / 100));
      lines.replaceChildren(...runs.map((run, i) => svg("path", {
        class: `ex-stroke ${i === runs.length - 1 ? "tr-now" : "tr-before"}`,
        d: line(run.map(([step, p]) => [x(step), y(p)])),
      })));
    },
  };
}

/** The answers to one prompt: probabilities before (outline) and after (bar), draws (dots), targets (lines). */
export function bars() {
  const group = svg("g", {});
  let [box, y, wide] = [null, null, 0];
  return {
    layout(node, width, height) {
      box = { left: 34, right: width - 8, top: 50, bottom: height - 22 };
      y = linear([0, 1], [box.bottom, box.top]);
      wide = (box.right - box.left) / VOCABULARY;
      node.replaceChildren(group);
    },
    draw(prompt, old, now, drawn = []) {
      const dots = Math.max(1, Math.floor((wide - 4) / 6)); // in a row
      const marks = now.map((p, answer) => {
        const left = box.left + answer * wide + 2;
        const mine = drawn.filter((each) => each.answer === answer);
        const end = mine[0]?.end ?? null;
        const target = end === null ? null : Math.min(1, old[answer] * Math.exp(end));
        const kind = answer === rightAnswer(prompt) ? "ex-right" : "ex-wrong";
        const bar = (value, name) => svg("rect", {
          class: name, x: left, width: wide - 4, y: y(value), height: Math.max(0, box.bottom - y(value)),
        });
        const aim = { class: "tr-target", x1: left - 2, x2: left + wide - 2, y1: y(target ?? 0), y2: y(target ?? 0) };
        return svg("g", {}, bar(p, `ex-fill ${kind}`), bar(old[answer], "tr-old"),
          ...mine.map((_, i) => svg("circle", {
            class: `ex-fill ${kind}`, r: 2.6, cx: left + 3 + 6 * (i % dots), cy: box.top - 8 - 6 * Math.floor(i / dots),
          })),
          ...(target === null ? [] : [svg("line", aim)]),
          svg("text", { x: left + wide / 2 - 2, y: box.bottom + 15, "text-anchor": "middle" }, nameOf(answer)));
      });
      group.replaceChildren(axis("left", y, box, { count: 2 }), ...marks);
    },
  };
}
