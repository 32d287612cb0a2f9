// The third picture of the rollout lab: which weights draw which tokens, in turns, with a lag, and in flight.

import { axis, decimals, linear, set, svg, text } from "../common/svg.js";

const MODES = [["turns", "in turns", 0], ["lag", "lag 1", 1], ["flight", "in flight", 1]];
const ROWS = [0.97, 0.2, 0.75, 0.3, 0.5]; // lengths of a step's responses, of the rollout
const SHOWN = 6; // rollouts, in time
const LANE = 102; // pixels of a mode
const PARTS = { even: "ex-author", odd: "ex-author ex-other", trainer: "ex-update", seams: "ex-seam" };

export const authorsHeight = () => MODES.length * LANE + 44; // pixels of the stage

/**
 * When each step is written and updated on, in rollouts, as in `pmdkit_lab.planner.timeline`.
 * @returns {Array<{updated: [number, number], authors: Array<[number, number, number]>}>} from, to, version that draws
 */
export function schedule(update, lag, inFlight, steps) {
  const spans = [];
  for (let s = 0; s < steps; s += 1) {
    const begin = Math.max(s && spans[s - 1].begin + 1, s > lag && spans[s - 1 - lag].updated[1]);
    const free = Math.max(begin + 1, s && spans[s - 1].updated[1]);
    const made = spans.map((span) => span.updated[1]); // when each version is there
    const cuts = [begin, ...made.filter((end) => inFlight && end > begin && end < begin + 1), begin + 1];
    const version = (from) => (inFlight ? made.filter((end) => end <= from).length : Math.max(0, s - lag));
    const authors = cuts.slice(1).map((to, i) => [cuts[i], to, version(cuts[i])]);
    spans.push({ begin, updated: [free, free + update], authors });
  }
  return spans;
}

/** @returns {{layout: Function, draw: (state: Object) => void}} */
export function authors() {
  const lanes = MODES.map(([key, name, lag], i) => {
    const parts = Object.entries(PARTS).map(([part, look]) => [part, svg("path", { class: look })]);
    const title = svg("text", { x: 6, y: i * LANE + 14, class: "ex-rim ex-title", "data-mode": key });
    const names = svg("g", { "text-anchor": "middle" });
    const node = svg("g", {}, ...parts.map(([, path]) => path), names, title);
    return { name, lag, inFlight: key === "flight", top: i * LANE + 34, parts, names, title, node };
  });
  let across = linear([0, SHOWN], [0, 1]);

  function layout(node, width) {
    across = linear([0, SHOWN], [6, width - 6]);
    const box = { left: 6, right: width - 6, top: 20, bottom: MODES.length * LANE + 6 };
    const frame = axis("bottom", across, box, { count: SHOWN, label: "time (in rollouts)" });
    node.replaceChildren(frame, ...lanes.map((lane) => lane.node));
  }

  function draw({ u }) {
    const at = (time) => across(Math.min(time, SHOWN)).toFixed(1);
    const bar = (from, to, y, high) => (from < Math.min(to, SHOWN) ? `M${at(from)} ${y}H${at(to)}v${high}H${at(from)}z` : "");
    for (const { name, lag, inFlight, top, parts, names, title } of lanes) {
      const spans = schedule(u, lag, inFlight, 60);
      const d = { even: "", odd: "", trainer: "", seams: "" };
      const said = [];
      spans.forEach(({ begin, updated: [from, to], authors: pieces }, s) => {
        d.trainer += bar(from, to, top + 48, 13);
        said.push([(from + to) / 2, top + 58.5, s + 1], ...pieces.map(([a, b, version]) => [(a + b) / 2, top - 4, version]));
        for (const [a, b, version] of pieces) {
          ROWS.forEach((_, i) => {
            const end = begin + ROWS[(i + s) % ROWS.length];
            d[version % 2 ? "odd" : "even"] += bar(a, Math.min(b, end), top + 9 * i, 6);
            if (a > begin && a < Math.min(end, SHOWN)) d.seams += `M${at(a)} ${top + 9 * i - 1.5}v9`;
          });
        }
      });
      for (const [part, path] of parts) set(path, { d: d[part] });
      names.replaceChildren(...said.filter(([time]) => time < SHOWN - 0.1).map(([time, y, version]) =>
        svg("text", { x: at(time), y, class: "ex-tick" }, String(version))));
      const [before, last] = spans.slice(-2);
      const age = last.authors.reduce((sum, [a, b, version]) => sum + (b - a) * (59 - version), 0);
      const pace = last.updated[1] - before.updated[1];
      text(title, `${name}: a step takes ${decimals(pace, 2)}, weights are ${decimals(age, 2)} steps old`);
      set(title, { "data-pace": pace, "data-age": age });
    }
  }

  return { layout, draw };
}
