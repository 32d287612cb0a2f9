// The picture of one GPU's memory: a bar for each phase, part by part, against the limit.

import { axis, html, linear, number, set, svg, text } from "../common/svg.js";

/** Parts in the order of the planner: key, words. */
export const PARTS = [
  ["weights", "weights, float32"], ["optimizer", "optimizer moments"], ["engine weights", "engine's copy"],
  ["KV cache", "keys and values"], ["gradients", "gradients"], ["gathered weights", "gathered weights"],
  ["activations", "activations"], ["logits", "logits"], ["gradient of the head", "gradient of the head"],
];
const BAR = 30;
const HEAD = 8;

/** Pixels of the stage. */
export const heldHeight = () => HEAD + 3 * (BAR + 24) + 44;

export function bars() {
  const frame = svg("g", {});
  const blocks = svg("g", {});
  const limit = svg("path", { class: "ba-limit" });
  const label = svg("text", { class: "ex-rim ba-limit-text" });
  let width = 600;

  function layout(node, wide) {
    width = wide;
    if (frame.parentNode === null) node.append(frame, blocks, limit, label);
  }

  function draw({ found, setting }) {
    const { phases, totals, limit: most } = found.memory;
    const box = { left: 8, right: width - 12, top: HEAD, bottom: HEAD + 3 * (BAR + 24) };
    const across = linear([0, 1.06 * Math.max(most, ...Object.values(totals))], [box.left, box.right]);
    frame.replaceChildren(axis("bottom", across, box, { count: width < 480 ? 4 : 7, label: `memory of one ${setting.gpu} (GiB)` }));
    const nodes = [];
    Object.entries(phases).forEach(([phase, parts], i) => {
      const y = HEAD + 18 + i * (BAR + 24);
      const who = !setting.serve ? phase : phase === "rollout" ? "an engine" : `a trainer, ${phase}`;
      nodes.push(svg("text", { x: box.left, y: y - 5, class: "ex-quiet ex-rim" }, `${who}: ${number(totals[phase])} GiB`));
      let from = 0;
      for (const [key] of PARTS) {
        if (!(parts[key] > 0)) continue;
        const wide = across(from + parts[key]) - across(from);
        nodes.push(svg("rect", {
          x: across(from).toFixed(2), y, width: wide.toFixed(2), height: BAR, class: `ba-block ba-part-${slug(key)}`,
          "data-part": `${phase}/${key}`,
        }));
        from += parts[key];
      }
      if (from > most) {
        nodes.push(svg("rect", { x: across(most), y: y + BAR, width: across(from) - across(most), height: 5, class: "ba-over" }));
      }
    });
    blocks.replaceChildren(...nodes);
    const x = across(most);
    set(limit, { d: `M${x.toFixed(1)} ${HEAD}V${box.bottom}` });
    set(label, { x: x - 5, y: HEAD + 12, "text-anchor": "end" });
    text(label, `limit ${number(most)}`);
  }

  return { layout, draw };
}

/** A coloured square for the table. */
export const square = (key) => html("i", { class: `ba-square ba-part-${slug(key)}` });

const slug = (key) => key.replaceAll(" ", "-").toLowerCase();
