// The picture of a run's first steps in time: who generates, who trains, and how old the policy of each ministep is.

import { draggable } from "../common/controls.js";
import { axis, line, linear, number, set, svg } from "../common/svg.js";

const LANE = 34; // pixels
const STRIPES = 64; // at most, of one step; more would not be seen

/** Pixels of the stage. */
export const timeHeight = () => 336;

/** @param {{state: Object, change: (part: Object) => void}} explorer */
export function schedule(explorer) {
  let box = { left: 8, right: 400 };
  let across = linear([0, 1], [0, 1]);
  let seconds = 1;
  const frame = svg("g", {});
  const blocks = svg("g", {});
  const age = svg("path", { class: "ba-age" });
  const cursor = svg("path", { class: "ba-cursor" });
  const grip = svg("g", { "data-key": "moment" }, svg("circle", { r: 19, class: "ex-hit" }),
    svg("circle", { r: 13, class: "ex-ring" }), svg("circle", { r: 8, class: "ba-grip" }));
  const to = (at) => explorer.change({ at: Math.min(1, Math.max(0, at)) });
  const bottom = 318;
  const handle = draggable(grip, {
    label: "moment that is looked at",
    min: 0,
    max: 100,
    now: () => Math.round(100 * explorer.state.at),
    describe: () => `${number(explorer.state.at * seconds)} seconds`,
    at: () => [across(explorer.state.at * seconds), bottom],
    move: (x) => to(across.invert(x) / seconds),
    nudge: (dx, dy) => to(explorer.state.at + (dx + dy) / 100),
    jump: (toMax) => to(toMax ? 0.9999 : 0),
  });

  function layout(node, width) {
    box = { left: 44, right: width - 10 };
    if (frame.parentNode === null) node.append(frame, blocks, age, cursor, grip);
  }

  function draw(state, { found, time, ends, old, setting, updates }) {
    seconds = ends;
    across = linear([0, ends], [box.left, box.right]);
    const who = (count) => `${setting.serve || setting.gpus === 1 ? "" : "all "}${count} GPU${count === 1 ? "" : "s"}`;
    const lanes = [[`generate: ${who(found.generators)}`, 24], [`train: ${who(found.trainers)}`, 24 + LANE + 26]];
    const nodes = lanes.map(([words, y]) => svg("text", { x: box.left, y: y - 7, class: "ex-quiet" }, words));
    const rect = (from, to, y, className, more = {}) => svg("rect", {
      x: across(from).toFixed(2), y, width: Math.max(0, across(to) - across(from)).toFixed(2), height: LANE, class: className, ...more,
    });
    const oldest = Math.max(1, (setting.lag + 1) * updates - 1);
    time.generation.forEach(([from, to], step) => {
      nodes.push(rect(from, to, lanes[0][1], "ba-generate ba-block"), ...name(from, to, lanes[0][1], step));
    });
    time.update.forEach(([from, to], step) => {
      const y = lanes[1][1];
      const start = from + found.scoring;
      if (found.scoring) nodes.push(rect(from, start, y, "ba-score ba-block"));
      const count = Math.min(STRIPES, updates);
      for (let k = 0; k < count; k += 1) {
        const edge = (i) => start + ((to - start) * i) / count;
        const first = Math.floor((k * updates) / count);
        nodes.push(rect(edge(k), edge(k + 1), y, `ba-aged${count <= 24 ? " ba-block" : ""}`, {
          style: `--age: ${((100 * old[step][first]) / oldest).toFixed(1)}%`,
          "data-age": count === updates ? old[step][k] : null,
        }));
      }
      nodes.push(...name(from, to, y, step));
    });
    blocks.replaceChildren(...nodes);
    ageOf({ found, time, old, oldest, updates });
    const x = across(state.at * ends);
    set(cursor, { d: line([[x, 18], [x, 272]]) });
    set(grip, { transform: `translate(${x.toFixed(1)} ${bottom})` });
    handle.refresh();
  }

  function name(from, to, y, step) {
    if (across(to) - across(from) < 16) return [];
    const middle = (across(from) + across(to)) / 2;
    return [svg("text", { x: middle, y: y + LANE / 2 + 4, class: "ba-step ex-rim", "text-anchor": "middle" }, String(step + 1))];
  }

  /** Age of the policy that wrote what is learned from, over time: a staircase in each update. */
  function ageOf({ found, time, old, oldest, updates }) {
    const area = { ...box, top: 172, bottom: 272 };
    const up = linear([0, oldest + 1], [area.bottom, area.top]);
    frame.replaceChildren(
      axis("left", up, area, { ticks: ticksOf(oldest), label: "policy age of the responses (updates)" }),
      axis("bottom", across, area, { count: box.right < 480 ? 4 : 6, grid: false, label: "time (s)" }),
    );
    let d = "";
    time.update.forEach(([from, to], step) => {
      const start = from + found.scoring;
      const edge = (k) => across(start + ((to - start) * k) / updates);
      const points = [[edge(0), up(0)]];
      old[step].forEach((value, k) => points.push([edge(k), up(value + 0.15)], [edge(k + 1), up(value + 0.15)]));
      d += `${line([...points, [edge(updates), up(0)]])}Z`;
    });
    set(age, { d });
  }

  return { layout, draw };
}

function ticksOf(oldest) {
  const found = linear([0, oldest], [0, 1]).ticks(4).filter(Number.isInteger);
  return found.length > 1 ? found : [0, oldest];
}

/** The legend: what the fills mean. */
export function timeLegend(html) {
  const mark = (className, words) => html("span", { class: "ba-key" }, html("i", { class: className }), words);
  const nodes = [["ba-generate", "generation"], ["ba-score", "scoring"], ["ba-update", "ministeps, stronger = older policy"]];
  return html("p", { class: "ba-legend" }, ...nodes.map(([className, words]) => mark(className, words)));
}

/** Seconds in the unit that reads best. */
export function duration(value) {
  if (value >= 5400) return `${number(value / 3600)} h`;
  return value >= 600 ? `${number(value / 60)} min` : `${number(value)} s`;
}
