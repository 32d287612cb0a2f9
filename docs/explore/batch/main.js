// The batch and staleness planner: its controls and numbers. Pictures: time.js, held.js; other frameworks: words.js.

import { button, buttons, choice, slider } from "../common/controls.js";
import { mount, readout, scheduler, sentence, stage } from "../common/figure.js";
import { onHash, readHash, writeHash } from "../common/hash.js";
import { html, number, set } from "../common/svg.js";
import { PARTS, bars, heldHeight, square } from "./held.js";
import { DEFAULTS, EVEN, LIMITS, PRESETS, division, divisors, solve, tables, tidy } from "./state.js";
import { duration, schedule, timeHeight, timeLegend } from "./time.js";
import { translate, words } from "./words.js";

const MODELS = { "Qwen/Qwen2.5-0.5B": "0.5B", "Qwen/Qwen2.5-1.5B": "1.5B", "Qwen/Qwen2.5-7B": "7B", "Qwen/Qwen3-30B-A3B-Base": "30B-A3B" };
const YES_NO = [["1", "yes"], ["0", "no"]];

mount("batch", (body, timer) => {
  const explorer = { state: tidy(readHash(DEFAULTS)), change };
  let story = "";
  const time = schedule(explorer);
  const held = bars();
  const spoken = words();
  const draw = scheduler(show, timer);
  const left = html("div", {});
  const right = html("div", {});

  const presets = PRESETS.map(([key, name, state, says]) => button(name, `preset-${key}`, () => {
    change({ ...state, at: explorer.state.at });
    story = says;
  }));
  body.append(buttons("settings to look at", ...presets), html("div", { class: "ex-columns" }, left, right));
  stage(left, "The first steps of a run in time", timeHeight, (...size) => (time.layout(...size), draw()));
  left.append(timeLegend(html));
  const told = sentence();
  left.append(told.node);

  const sliders = {};
  const add = (parent, key, label, unit, more = {}) => {
    const [min, max] = LIMITS[key];
    let stepping = false; // by an arrow key: to the next value, not back to the nearest
    const onInput = (value) => {
      const { list } = more;
      const own = list === undefined || document.activeElement?.type === "number";
      change({ [key]: own ? value : detent(list(), value, explorer.state[key], stepping) });
      stepping = false;
    };
    sliders[key] = slider({
      label, key, min, max, value: explorer.state[key], whole: true, log: true, describe: (value) => `${value} ${unit}`, ...more, onInput,
    });
    sliders[key].node.addEventListener("keydown", () => { stepping = true; }, true);
    parent.append(sliders[key].node);
  };
  const picks = {};
  const pick = (parent, key, label, options) => {
    picks[key] = choice({
      label, key, options, value: String(explorer.state[key]),
      onInput: (value) => change({ [key]: typeof DEFAULTS[key] === "number" ? Number(value) : value }),
    });
    parent.append(picks[key].node);
  };
  add(right, "prompts", "prompts of a rollout batch, P", "prompts", { list: () => EVEN });
  add(right, "group", "responses to each prompt, G", "responses", { list: () => EVEN });
  add(right, "ministeps", "ministeps: updates per rollout batch", "ministeps", { list: () => divisors(explorer.state.prompts) });
  add(right, "mean", "mean length of a response (tokens)", "tokens");
  pick(right, "model", "model", Object.entries(MODELS));
  add(right, "gpus", "GPUs", "GPUs", { list: () => EVEN });
  add(right, "lag", "lag (rollout batches)", "rollout batches", { log: false });
  add(right, "serve", "of the GPUs, only generate", "GPUs", { log: false });
  const best = button("Best division", "best", () => change({ serve: division(explorer.state) }));
  right.append(buttons("division of the GPUs", best));

  const more = html("details", { class: "ex-more" }, html("summary", {}, "More options: GPU, lengths, trainer"));
  right.append(more);
  pick(more, "gpu", "kind of GPU", Object.keys(tables.gpus).map((name) => [name, name]));
  pick(more, "shape", "shape of the lengths", Object.keys(tables.quantiles).map((name) => [name, name]));
  add(more, "width", "longest response (tokens)", "tokens", { list: () => EVEN });
  add(more, "max_prompt", "longest prompt (tokens)", "tokens", { list: () => EVEN });
  add(more, "token_budget", "tokens of one forward pass of the trainer", "tokens", { list: () => EVEN });
  add(more, "passes", "passes over a rollout batch", "passes", { log: false });
  pick(more, "tp", "GPUs of one engine (tensor parallel)", ["1", "2", "4", "8"].map((name) => [name, name]));
  pick(more, "checkpointing", "activation checkpointing", YES_NO);
  pick(more, "fsdp2", "state cut over the trainers (FSDP2)", YES_NO);
  pick(more, "recompute", "score responses with the trainer", YES_NO);

  const costs = readout("What a step costs; predictions, good to a factor of two", [
    ["generation", "generation"], ["scoring", "scoring"], ["update", "update"], ["step", "a step"],
    ["token", "per token of response, without scoring"], ["speedup", "times faster than on-policy"],
    ["responses", "responses of a step"], ["staleness", "policy age of the last ministep (updates)"],
  ], [["value", "predicted"]]);
  const memory = readout("Memory of one GPU (GiB)", [...PARTS, ["total", "together"], ["limit", "limit"]],
    [["rollout", "rollout"], ["score", "scoring"], ["update", "update"]]);
  const rows = [...memory.node.querySelectorAll("tbody tr")];
  PARTS.forEach(([key], i) => rows[i].firstChild.prepend(square(key), " "));
  left.append(costs.node);
  const picture = html("div", {});
  body.append(html("div", { class: "ex-columns ba-memory" }, picture, memory.node), spoken.node);
  stage(picture, "Memory of one GPU", heldHeight, (...size) => (held.layout(...size), draw()));

  function change(part) {
    const before = explorer.state;
    const next = tidy({ ...before, ...part });
    if (part.lag !== undefined && part.serve === undefined && next.gpus > 1) {
      if (!before.lag && next.lag && !next.serve) next.serve = division(next); // the same GPUs would gain nothing
      if (before.lag && !next.lag) next.serve = 0;
    }
    story = "";
    explorer.state = tidy(next);
    writeHash(explorer.state);
    draw();
  }

  function show() {
    const { state } = explorer;
    const seen = solve(state);
    for (const [key, control] of Object.entries(sliders)) control.set(key === "mean" ? seen.found.meanLength : state[key]);
    for (const [key, control] of Object.entries(picks)) control.set(String(state[key]));
    set(sliders.serve.node, { hidden: state.gpus === 1 });
    best.disabled = state.gpus === 1 || !state.lag;
    time.draw(state, seen);
    held.draw(seen);
    numbers(seen);
    spoken.show(seen.setting, translate(seen.setting, seen.found, state.recipe));
    told.say([story, summary(seen)].join(" ").trim());
  }

  function numbers({ found, setting }) {
    const say = (row, value, text) => costs.show(row, "value", value, text);
    say("generation", found.generation.seconds, duration(found.generation.seconds));
    say("scoring", found.scoring, found.scoring ? duration(found.scoring) : "none");
    say("update", found.update.seconds, duration(found.update.seconds));
    say("step", found.seconds, duration(found.seconds));
    say("token", found.perToken.overall, `${number(found.perToken.overall)} ms`);
    say("speedup", found.speedup, number(found.speedup));
    say("responses", setting.prompts * setting.group, String(setting.prompts * setting.group));
    say("staleness", found.staleness, String(found.staleness));
    const { phases, totals, limit } = found.memory;
    for (const phase of Object.keys(phases)) {
      for (const [key] of PARTS) memory.show(key, phase, phases[phase][key] ?? 0, phases[phase][key] ? number(phases[phase][key]) : "");
      memory.show("total", phase, totals[phase], number(totals[phase]));
      memory.show("limit", phase, limit, number(limit));
    }
    PARTS.forEach(([key], i) => set(rows[i], { hidden: !Object.values(phases).some((parts) => parts[key]) }));
  }

  draw();
  onHash(() => change(readHash(DEFAULTS)));
});

/** The nearest of a list; from an arrow key the next one in its direction. */
function detent(list, value, before, stepping) {
  if (stepping && value > before) return list.find((each) => each > before) ?? before;
  if (stepping && value < before) return list.findLast((each) => each < before) ?? before;
  return list.reduce((a, b) => (Math.abs(Math.log(b / value)) < Math.abs(Math.log(a / value)) ? b : a));
}

function summary({ found, setting, moment, updates }) {
  const { second, writing, learning, ministep, age } = moment;
  const doing = [];
  if (writing >= 0) doing.push(`batch ${writing + 1} is written`);
  if (learning >= 0 && Number.isNaN(ministep)) doing.push(`batch ${learning + 1} is scored`);
  if (learning >= 0 && !Number.isNaN(ministep)) {
    doing.push(`update ${ministep + 1} of ${updates} learns from batch ${learning + 1}, which a policy ${age === 0 ? "of now" : `${age} update${age === 1 ? "" : "s"} old`} wrote`);
  }
  const now = `After ${duration(second)} ${doing.join(" and ") || "all wait"}.`;
  const waiting = found.generation.queue > 0 ? ` Memory holds ${number(100 * (1 - found.generation.queue), 2)}% of an engine's responses at a time; the others wait.` : "";
  const same = setting.lag && !setting.serve ? " On the same GPUs a lag gains nothing." : "";
  if (found.memory.fits) return now + waiting + same;
  const { totals, limit, room } = found.memory;
  const most = Math.max(...Object.values(totals));
  return `This does not fit: ${most > limit ? `${number(most)} GiB are needed and ${number(limit)} may be used`
    : `an engine has room for ${number(Math.max(0, room), 2)} tokens, and one response may have ${setting.max_prompt + setting.width}`}. Times are told as if it did. ${now}`;
}
