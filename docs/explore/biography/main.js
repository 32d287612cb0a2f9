// Biography of a prompt: a recorded run, a step to choose, each response as text with what an objective does to it.
// Texts come from a model or from a file that anybody wrote: they enter the page as text nodes only.

import { button, buttons, choice, slider } from "../common/controls.js";
import { mount, scheduler, sentence, stage } from "../common/figure.js";
import { onHash, readHash, writeHash } from "../common/hash.js";
import { html, set, text } from "../common/svg.js";
import { TITLES } from "../losses/state.js";
import { POINTS, problemOf, pushes, RECORDED_NAMES } from "../math/recorded.js";
import tables from "./tables.js";
import { cells, stripOf } from "./rows.js";
import { PLACES, reason, summary } from "./words.js";

const MOST = 8_000_000; // bytes of a file that is opened
const DEFAULTS = { prompt: 2, step: 2, objective: "", tau: 0, at: "after" };
const OPENED = { ...DEFAULTS, prompt: 1, step: 0 }; // a file of the reader's own: its first prompt and step
const TAU = [0.005, 5];

const shipped = await fetch(new URL("biography.json", import.meta.url)).then((answer) => answer.json());

mount("biography", (body, timer) => {
  let run = shipped;
  let opened = 0; // the response whose reason is shown
  const state = { ...DEFAULTS };
  const draw = scheduler(show, timer);

  const select = html("select", { class: "bi-select", "data-key": "prompt" });
  select.addEventListener("change", () => change({ prompt: Number(select.value) }));
  const [question, whole] = [html("summary", {}), html("div", {})];
  const asked = html("details", { class: "bi-prompt" }, question, whole);
  const file = html("input", { type: "file", accept: ".json,application/json", "data-key": "file", hidden: true });
  file.addEventListener("change", () => file.files[0] && read(file.files[0]));
  const trouble = html("p", { class: "bi-why", role: "alert" });
  const columns = html("div", { class: "ex-columns" });
  const left = html("div", {});
  const right = html("div", {});
  columns.append(left, right);
  body.append(columns);
  left.append(html("label", { class: "bi-field" }, "prompt", select), asked);
  const strip = stripOf((step) => change({ step }));
  stage(left, "Share of right responses by step", () => 150, (...size) => (strip.layout(...size), draw()));
  let steps = slider({ label: "step", key: "step", min: 1, max: 2, value: 1, whole: true, onInput: () => {} });
  const stepBox = html("div", {});
  left.append(stepBox);

  const names = html("select", { class: "bi-select", "data-key": "objective" });
  for (const name of RECORDED_NAMES) names.append(html("option", { value: name }, TITLES[name]));
  names.addEventListener("change", () => change({ objective: names.value }));
  right.append(html("label", { class: "bi-field" }, "objective", names));
  const tau = slider({
    label: "temperature τ (reward units)", key: "tau", min: TAU[0], max: TAU[1], value: 0.05, log: true,
    describe: (value) => `${value} reward units`, onInput: (value) => change({ tau: value }),
  });
  right.append(tau.node);
  const at = choice({
    label: "at the policy", key: "at", value: DEFAULTS.at, onInput: (value) => change({ at: value }),
    options: [["old", "that drew them"], ["seen", "before their update"], ["after", "after the step"]],
  });
  right.append(at.node);
  right.append(buttons("files", button("Open a file", "open", () => file.click()), button("The recorded run", "shipped", () => use(shipped))));
  right.append(file, trouble);
  const words = sentence();
  const head = html("div", { class: "bi-head", "aria-hidden": "true" },
    html("span", {}, "verdict"), html("span", {}, "response"), html("span", {}, "log-ratio"), html("span", {}, "push, share of the group"));
  const list = html("div", { class: "bi-list" });
  body.append(words.node, head, list);

  function change(part) {
    if (part.prompt !== undefined || part.step !== undefined) opened = -1;
    Object.assign(state, part);
    tidy();
    writeHash(state);
    draw();
  }

  /** Keep the state within what the run has; an address can be edited by hand. */
  function tidy() {
    state.prompt = Math.min(Math.max(Math.round(state.prompt), 1), run.prompts.length);
    const known = run.prompts[state.prompt - 1].groups.map((group) => group.step);
    const near = (one, other) => (Math.abs(other - state.step) < Math.abs(one - state.step) ? other : one);
    state.step = known.reduce(near);
    if (!RECORDED_NAMES.includes(state.objective)) state.objective = RECORDED_NAMES.includes(run.objective.name) ? run.objective.name : "pmd-mean";
    if (!(state.tau > 0)) state.tau = typeof run.objective.tau === "number" ? run.objective.tau : 0.05;
    state.tau = Math.min(Math.max(state.tau, TAU[0]), TAU[1]);
    if (!POINTS.includes(state.at)) state.at = DEFAULTS.at;
  }

  function use(data, from = DEFAULTS) {
    const first = select.childElementCount === 0;
    run = data;
    opened = 0;
    text(trouble, "");
    select.replaceChildren(...run.prompts.map((prompt, i) => html("option", { value: i + 1 }, `${i + 1}: ${short(prompt.name)}`)));
    Object.assign(state, DEFAULTS, from);
    tidy();
    if (!first) writeHash(state);
    draw();
  }

  async function read(chosen) {
    try {
      if (chosen.size > MOST) throw new Error(`the file has ${chosen.size} bytes; expected at most ${MOST}`);
      const data = JSON.parse(await chosen.text());
      const problem = problemOf(data);
      if (problem) throw new Error(problem);
      use(data, OPENED);
    } catch (error) {
      text(trouble, `${chosen.name}: ${error.message}.`);
    }
    file.value = "";
  }

  function optionsNow() {
    const own = state.objective === run.objective.name ? run.objective : {};
    const options = { ...tables[state.objective].options, ...own, name: state.objective };
    return options.tau === undefined ? options : { ...options, tau: state.tau };
  }

  let laid = ""; // steps of the slider
  function show() {
    const prompt = run.prompts[state.prompt - 1];
    const group = prompt.groups.find((each) => each.step === state.step);
    const known = prompt.groups.map((each) => each.step);
    const span = known.length > 1 ? [known[0], known.at(-1)] : [known[0], known[0] + 1];
    if (laid !== span.join()) {
      laid = span.join();
      steps = slider({
        label: "step", key: "step", min: span[0], max: span[1], value: state.step, whole: true,
        describe: (value) => `step ${value}`, onInput: (value) => change({ step: value }),
      });
      stepBox.replaceChildren(steps.node);
    }
    steps.set(state.step);
    select.value = state.prompt;
    names.value = state.objective;
    tau.set(state.tau);
    at.set(state.at);
    text(whole, prompt.text);
    text(question, lastLine(prompt.text) || prompt.name);
    const options = optionsNow();
    set(tau.node, { hidden: options.tau === undefined });
    const found = pushes(group, run, options, state.at);
    strip.draw(prompt.groups, state.step, run.passed);
    words.say(summary(group, found, run, options, TITLES[state.objective], PLACES[state.at]));
    rows(group, found, options);
  }

  function rows(group, found, options) {
    const seen = found.rows ?? group.text.map(() => null);
    list.replaceChildren(...cells(group, seen, run.passed).flatMap(({ verdict, words: response, ratio, push }, i) => {
      const node = html("button", { type: "button", class: "bi-row", "data-key": `row-${i}`, "aria-expanded": String(i === opened) },
        verdict, response, ratio, push);
      node.addEventListener("click", () => {
        opened = opened === i ? -1 : i;
        draw();
        requestAnimationFrame(() => list.querySelector(`[data-key="row-${i}"]`)?.focus());
      });
      if (i !== opened) return [node];
      const why = found.missing ? `${found.missing}.` : reason(seen[i], group, i, run, options, TITLES[state.objective]);
      return [node, html("p", { class: "bi-why", "data-key": "why" }, why)];
    }));
  }

  use(shipped, readHash(DEFAULTS));
  onHash(() => change(readHash(DEFAULTS)));
});

function short(words) {
  return words.length > 70 ? `${words.slice(0, 70)} ...` : words;
}

/** What a prompt in a chat format asks last, without the marks of its turns. */
function lastLine(words) {
  const lines = words.split("\n").filter((each) => each.trim() && !each.startsWith("<|"));
  return short((lines.at(-1) ?? "").replace(/<\|\w+\|>$/, ""));
}
