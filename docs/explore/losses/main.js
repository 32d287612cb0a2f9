// The loss landscape: its controls, legend and numbers. The picture is picture.js, what each objective sees state.js.

import { button, buttons, choice, slider } from "../common/controls.js";
import { mount, readout, scheduler, sentence, stage } from "../common/figure.js";
import { onHash, readHash, writeHash } from "../common/hash.js";
import { html, number, set, svg, text } from "../common/svg.js";
import { NAMES } from "../math/objectives.js";
import { heightFor, landscape } from "./picture.js";
import { DEFAULTS, LIMITS, PRESETS, TITLES, groupOf, possible, shown, tidy, view } from "./state.js";
import tables from "./tables.js";

const LOOKS = Object.fromEntries(NAMES.map((name) => [name, { ...tables[name], title: TITLES[name] }]));

mount("losses", (body, timer) => {
  const explorer = { state: tidy(readHash(DEFAULTS)), change };
  let story = "";
  const picture = landscape(explorer, LOOKS);
  const draw = scheduler(show, timer);
  const left = html("div", {});
  const right = html("div", {});
  body.append(html("div", { class: "ex-columns" }, left, right));

  const presets = PRESETS.map(([key, words, changes, says]) => button(words, `preset-${key}`, () => {
    change({ ...DEFAULTS, ...changes });
    story = says;
  }));
  left.append(buttons("settings to look at", ...presets));
  stage(left, "Loss and push against the log-ratio of a response", heightFor, (...size) => (picture.layout(...size), draw()));
  const words = sentence();
  left.append(words.node);

  const keys = legend((on) => change({ on }));
  right.append(keys.node);
  const sliders = {};
  const add = (parent, key, label, unit, more = {}) => {
    const [min, max] = LIMITS[key];
    sliders[key] = slider({
      label, key, min, max, value: explorer.state[key], describe: (value) => `${value} ${unit}`,
      onInput: (value) => change({ [key]: value }), ...more,
    });
    parent.append(sliders[key].node);
  };
  const picks = {};
  const pick = (parent, key, label, options) => {
    picks[key] = choice({ label, key, options, value: explorer.state[key], onInput: (value) => change({ [key]: value }) });
    parent.append(picks[key].node);
  };
  add(right, "tau", "temperature τ (reward units)", "reward units", { log: true });
  pick(right, "mode", "advantage", [["same", "the same for all"], ["group", "each its own, from a group"]]);
  const same = html("div", {});
  const group = html("div", {});
  right.append(same, group);
  add(same, "advantage", "advantage (reward units)", "reward units");
  pick(group, "own", "this response is", [["right", "right"], ["wrong", "wrong"]]);
  add(group, "right", "right responses of the group", "responses", { whole: true });
  add(group, "size", "responses of the group, G", "responses", { whole: true });
  pick(group, "rewards", "rewards", [["01", "0 and 1"], ["pm", "−1 and 1"]]);
  add(right, "range", "log-ratios shown, up to (nats)", "nats", { log: true });
  const more = html("details", { class: "ex-more" }, html("summary", {}, "More options: length, clips, links"));
  add(more, "length", "length of the response (tokens)", "tokens", { log: true, whole: true });
  add(more, "grpo_low", "clip_low of GRPO, Dr. GRPO, DAPO", "");
  add(more, "grpo_high", "clip_high of GRPO, Dr. GRPO", "");
  add(more, "dapo_high", "clip_high of DAPO", "");
  add(more, "gspo_low", "clip_low of GSPO", "", { log: true });
  add(more, "gspo_high", "clip_high of GSPO", "", { log: true });
  add(more, "cispo_high", "clip_high of CISPO", "");
  add(more, "kl_share", "kl_share of chi2-PO", "");
  pick(more, "dro", "value of DRO", [["group", "mean of the others"], ["number", "a number"]]);
  add(more, "value", "that number (reward units)", "reward units");
  add(more, "anchor", "log π_old/π_ref of the response, for TB (nats)", "nats");

  const table = readout("", NAMES.map((name) => [name, TITLES[name]]), [
    ["advantage", "advantage"], ["loss", "loss"], ["push", "push"], ["end", "push ends at"],
  ]);
  const rows = new Map([...table.node.querySelectorAll("tbody tr")].map((row, i) => [NAMES[i], row]));
  for (const [name, row] of rows) row.firstChild.prepend(swatch(name), " ");
  right.append(table.node, more);

  function change(part) {
    story = "";
    Object.assign(explorer.state, tidy({ ...explorer.state, ...part }));
    writeHash(explorer.state);
    draw();
  }

  function show() {
    const { state } = explorer;
    for (const [key, control] of [...Object.entries(sliders), ...Object.entries(picks)]) control.set(state[key]);
    set(same, { hidden: state.mode !== "same" });
    set(group, { hidden: state.mode !== "group" });
    set(sliders.value.node, { hidden: state.dro !== "number" });
    const names = shown(state, NAMES);
    const seen = possible(state) ? names.map((name) => ({ name, view: view(name, state) })) : [];
    keys.show(new Set(names));
    picture.draw(state, seen);
    numbers(state, seen);
    words.say([story, summary(state, seen)].join(" ").trim());
  }

  function numbers(state, seen) {
    const on = new Map(seen.map((one) => [one.name, one.view]));
    text(table.node.caption, `At log-ratio ${number(state.s)}, ratio ${number(Math.exp(state.s))}`);
    for (const [name, row] of rows) {
      const found = on.get(name);
      set(row, { hidden: found === undefined });
      if (found === undefined) continue;
      table.show(name, "advantage", found.row.advantage, number(found.row.advantage));
      table.show(name, "loss", found.raw(state.s), number(found.raw(state.s)));
      table.show(name, "push", found.push(state.s), number(found.push(state.s)));
      table.show(name, "end", found.rest ?? edge(found) ?? NaN, ending(found));
    }
  }

  draw();
  onHash(() => change(readHash(DEFAULTS)));
});

/** Buttons of which any number may be on, each with its line. */
function legend(onChange) {
  const on = new Set();
  const nodes = NAMES.map((name) => {
    const node = button("", `legend-${name}`, () => {
      if (!on.delete(name)) on.add(name);
      onChange(NAMES.filter((each) => on.has(each)).join(" "));
    });
    node.append(swatch(name), TITLES[name]);
    set(node, { class: "ex-button lo-key", title: LOOKS[name].says });
    return node;
  });
  return {
    node: buttons("objectives that are drawn", ...nodes),
    show(wanted) {
      on.clear();
      NAMES.forEach((name, i) => {
        if (wanted.has(name)) on.add(name);
        set(nodes[i], { "aria-pressed": String(wanted.has(name)) });
      });
    },
  };
}

function swatch(name) {
  const { colour, dash } = LOOKS[name];
  return svg("svg", { class: "lo-swatch", width: 30, height: 10, viewBox: "0 0 30 10", "aria-hidden": "true" },
    svg("line", {
      x1: 1, x2: 29, y1: 5, y2: 5, class: "lo-curve", style: `--lo: var(--lo-${colour.slice(1)})`,
      "stroke-dasharray": dash.map((length) => 1.8 * length).join(" ") || null,
    }));
}

/** The finite edge of the silent zone. */
const edge = (found) => found.silent?.find(Number.isFinite) ?? null;

function ending(found) {
  if (found.row.advantage === 0 && found.rest === null) return "no push";
  if (found.rest !== null) return `${number(found.rest)}, turns round`;
  return found.silent === null ? "never" : `${number(edge(found))}, silent`;
}

function summary(state, seen) {
  if (!possible(state)) {
    const { size, right, own } = groupOf(state);
    return `A group of ${size} with ${right} right responses has no ${own ? "right" : "wrong"} one: nothing is drawn.`;
  }
  if (!seen.length) return "No objective is on.";
  const told = seen.slice(0, 4).map(({ name, view: found }) => {
    const push = found.push(state.s);
    if (Math.abs(push) < 1e-12) return `${TITLES[name]} does not push it`;
    return `${TITLES[name]} pushes it ${push > 0 ? "up" : "down"} with ${number(Math.abs(push))}`;
  });
  const rest = seen.length > 4 ? ", and so on in the table" : "";
  return `At log-ratio ${number(state.s)} the response is ${number(Math.exp(state.s))} times as likely as under π_old: `
    + `${told.join(", ")}${rest}.`;
}
