// What the biography's page and the first page of the site both show of a group: its responses, and the strip of steps.
// Texts come from a model or from a file that anybody wrote: they enter the page as text nodes only.

import { axis, decimals, html, line, linear, number, svg } from "../common/svg.js";

/**
 * The parts of a response's line; the caller puts them in order.
 * @param {Object} group of a recorded run
 * @param {Array<Object|null>} seen rows of `pushes`, null where a response was not recorded
 * @param {number|null} passed the reward above which a response is right; null if the run has none
 * @returns {Array<{verdict: HTMLElement, words: HTMLElement, ratio: HTMLElement, push: HTMLElement}>}
 */
export function cells(group, seen, passed) {
  const sizes = seen.map((row) => Math.abs(row?.push ?? 0));
  const total = sizes.reduce((sum, size) => sum + size, 0);
  const most = Math.max(...sizes);
  return group.text.map((response, i) => {
    const row = seen[i];
    const share = row === null || total === 0 ? 0 : row.push / total;
    const written = row === null ? "–" : `${share > 0 ? "+" : ""}${number(100 * share, 2)} %`;
    return {
      verdict: verdict(group.reward[i], passed),
      words: html("span", { class: "bi-text" }, response),
      ratio: html("span", { class: "bi-number", "data-cell": `${i}/ratio`, "data-value": row?.logRatio }, row === null ? "–" : decimals(row.logRatio, 2)),
      push: html("span", { class: "bi-push" }, bar(most === 0 || row === null ? 0 : row.push / most),
        html("span", { class: "bi-number", "data-cell": `${i}/push`, "data-value": row?.push }, written)),
    };
  });
}

function verdict(reward, passed) {
  if (reward === null) return html("span", { class: "bi-verdict" }, "none");
  if (passed === null || passed === undefined) return html("span", { class: "bi-verdict" }, number(reward));
  const [name, mark] = reward > passed ? ["right", "✓"] : ["wrong", "✗"];
  return html("span", { class: `bi-verdict bi-${name}` }, mark, html("span", {}, ` ${name}`));
}

/** A bar to the right for a push upward, to the left for one downward; -1 to 1. */
function bar(length) {
  const half = `${(50 * Math.abs(length)).toFixed(1)}%`;
  const style = `width:${half};${length > 0 ? "left:50%" : "right:50%"}`;
  return html("span", { class: "bi-bar" }, html("span", { class: length > 0 ? "bi-up" : "bi-down", style }));
}

/** The share of right responses, or the mean reward, of every recorded step of a prompt; a press chooses the step. */
export function stripOf(choose) {
  const inner = svg("g", {});
  let size = [400, 150];
  let scale = null;
  return {
    layout(node, width, height) {
      size = [width, height];
      if (inner.parentNode !== null) return;
      node.append(inner);
      node.addEventListener("click", (event) => {
        const box = node.getBoundingClientRect();
        if (scale) choose(Math.round(scale.invert(((event.clientX - box.left) / box.width) * size[0])));
      });
    },
    draw(groups, step, passed) {
      const [width, height] = size;
      const box = { left: 40, right: width - 10, top: 26, bottom: height - 42 };
      const value = (group) => {
        const known = group.reward.filter((reward) => reward !== null);
        const good = passed === null || passed === undefined ? known : known.map((reward) => Number(reward > passed));
        return known.length ? good.reduce((sum, each) => sum + each, 0) / known.length : NaN;
      };
      const values = groups.map(value).filter(Number.isFinite);
      const low = Math.min(0, ...values);
      const y = linear([low, Math.max(1, ...values)], [box.bottom, box.top]);
      const first = groups[0].step;
      const last = Math.max(groups.at(-1).step, first + 1);
      scale = linear([first, last], [box.left + 6, box.right - 6]);
      const ticks = scale.ticks(Math.min(8, last - first)).filter(Number.isInteger);
      const named = passed === null || passed === undefined ? "mean reward" : "share of right responses";
      inner.replaceChildren(
        axis("left", y, box, { count: 2, label: named }),
        axis("bottom", scale, box, { ticks, label: "step", grid: false }),
        svg("line", { class: "bi-now", x1: scale(step), x2: scale(step), y1: box.top, y2: box.bottom }),
        svg("path", { class: "bi-strip", d: line(groups.map((group) => [scale(group.step), y(value(group))])) }),
        ...groups.filter((group) => Number.isFinite(value(group))).map((group) => svg("circle", {
          class: "bi-dot", cx: scale(group.step), cy: y(value(group)), r: group.step === step ? 6 : 3.5,
        })),
      );
    },
  };
}
