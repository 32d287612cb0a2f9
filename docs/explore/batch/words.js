// The same step in four vocabularies: a table of what each number is called, and texts to copy.

import { button, choice } from "../common/controls.js";
import { html, text } from "../common/svg.js";
import { arithmetic, command, openrlhf, trl, verl } from "../math/batch.js";
import { memoryOf } from "../math/prediction.js";
import { tables } from "./state.js";

const ROLLOUT = "actor_rollout_ref.rollout";
const ACTOR = "actor_rollout_ref.actor";
const MACHINES = "needs whole machines of 8 GPUs, or fewer GPUs than one has";
export const VERSIONS = { trl: "TRL 1.16", verl: "verl 0.9", openrlhf: "OpenRLHF 0.11" };

/** All four, for a setting; null where a framework cannot do it. */
export function translate(setting, found, recipe) {
  const together = setting.serve || setting.lag ? memoryOf(tables, { ...setting, serve: 0, lag: 0 }) : found.memory;
  return {
    pmdkit: command(setting, tables.recipes[recipe]),
    trl: trl(setting, found),
    verl: verl(setting, tables, together),
    openrlhf: openrlhf(setting, found, tables, together),
    batch: arithmetic(setting, found.trainers),
    errors: {
      trl: arithmetic(setting, found.trainers).error,
      verl: arithmetic(setting, setting.gpus).error || MACHINES,
      openrlhf: arithmetic(setting, found.trainers).error || MACHINES,
    },
  };
}

/** Rows of the table: what it is, then a function from the translation to the cells of TRL, verl, OpenRLHF. */
const ROWS = [
  ["prompts of a rollout batch", "schedule.prompts", (s) => s.prompts,
    (k, s) => `per_device × GPUs × steps_per_generation / num_generations = ${s.prompts}`,
    (k) => key("data.train_batch_size", k), (k) => key("rollout.batch_size", k)],
  ["responses to each prompt", "schedule.group", (s) => s.group,
    (k) => key("num_generations", k), (k) => key(`${ROLLOUT}.n`, k), (k) => key("rollout.n_samples_per_prompt", k)],
  ["one update, a ministep", "prompts / ministeps", (s, b) => `${b.mini} prompts`,
    (k, s, b) => `per_device × GPUs × gradient_accumulation_steps = ${b.together} responses`,
    (k) => `${key(`${ACTOR}.ppo_mini_batch_size`, k)} prompts`, (k) => `${key("train.batch_size", k)} responses`],
  ["updates of a rollout batch", "schedule.ministeps", (s) => s.ministeps,
    (k) => `steps_per_generation / gradient_accumulation_steps = ${k.steps_per_generation} / ${k.gradient_accumulation_steps}`,
    (k) => `train_batch_size / ppo_mini_batch_size = ${k["data.train_batch_size"] / k[`${ACTOR}.ppo_mini_batch_size`]}`,
    (k, s) => `batch_size × n_samples / train.batch_size = ${s.ministeps}`],
  ["passes over it", "schedule.passes", (s) => s.passes,
    (k) => key("num_iterations", k), (k) => key(`${ACTOR}.ppo_epochs`, k), (k) => key("train.max_epochs", k)],
  ["one forward pass of a GPU", "update.token_budget", (s) => `${s.token_budget} tokens`,
    (k) => `${key("per_device_train_batch_size", k)} responses, padded`,
    (k) => `${key(`${ACTOR}.ppo_max_token_len_per_gpu`, k)} tokens`, (k) => `${key("train.micro_batch_size", k)} responses`],
  ["longest response", "rollout.width", (s) => `${s.width} tokens`,
    (k) => key("max_completion_length", k), (k) => key("data.max_response_length", k), (k) => key("rollout.max_new_tokens", k)],
  ["lag, in rollout batches", "rollout.lag", (s) => s.lag,
    (k, s) => (s.lag ? "cannot: it waits for its rollouts" : "0, always"),
    (k, s) => (s.lag ? "cannot: main_ppo takes turns" : "0, always"),
    (k, s) => (k["train.async_enable"] ? `${key("train.async_queue_size", k)}, a bound` : s.lag ? "needs servers apart" : "0")],
];

const key = (name, keys) => `${name} = ${keys[name]}`;

/** The table and the text to copy. @returns {{node: HTMLElement, show: Function}} */
export function words() {
  const cells = ROWS.map((_, i) => ["pmdkit", "trl", "verl", "openrlhf"].map((name) => html("td", { "data-word": `${name}/${i}` })));
  const head = html("tr", {}, html("td", {}), ...["pmdkit", ...Object.values(VERSIONS)].map((name) => html("th", { scope: "col" }, name)));
  const body = html("tbody", {}, ...ROWS.map(([what], i) => html("tr", {}, html("th", { scope: "row" }, what), ...cells[i])));
  const table = html("table", { class: "ex-readout ba-words" }, html("caption", {}, "The same step in other words"),
    html("thead", {}, head), body);
  const code = html("pre", { class: "ba-code", tabindex: 0, "aria-label": "the setting as text" });
  const told = html("span", { class: "ba-copied", role: "status" });
  let latest = {};
  const which = choice({
    label: "as text, to copy", key: "as", options: [["pmdkit", "pmdkit"], ...Object.entries(VERSIONS)], value: "pmdkit",
    onInput: () => write(),
  });
  const copy = button("Copy", "copy", async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      text(told, "copied");
    } catch {
      getSelection().selectAllChildren(code); // no permission: the reader copies what is selected
      text(told, "selected: press Ctrl+C");
    }
  });
  const scroll = html("div", { class: "ba-scroll", tabindex: 0, role: "group", "aria-label": "words of four frameworks" }, table);
  const node = html("div", {}, scroll, which.node, code, html("div", { class: "ex-buttons" }, copy, told));

  function write() {
    text(told, "");
    text(code, asText(which.value, latest[which.value], latest.errors));
  }

  function show(setting, translation) {
    latest = translation;
    ROWS.forEach(([, name, own, ...theirs], i) => {
      breakable(cells[i][0], `${name} = ${own(setting, translation.batch)}`);
      ["trl", "verl", "openrlhf"].forEach((framework, j) => {
        const keys = translation[framework];
        breakable(cells[i][j + 1], keys ? theirs[j](keys, setting, translation.batch) : "cannot: see the text below");
      });
    });
    write();
  }

  return { node, show };
}

/** The words, which may break after a dot or an underscore. */
function breakable(cell, words) {
  if (cell.textContent === words) return;
  cell.replaceChildren(...words.split(/(?<=[._])/).flatMap((part, i) => (i ? [html("wbr"), part] : [part])));
}

function asText(framework, keys, errors) {
  if (framework === "pmdkit") return keys;
  if (!keys) return `# ${VERSIONS[framework]} cannot: ${errors[framework]}`;
  const entries = Object.entries(keys);
  if (framework === "trl") return entries.map(([name, value]) => `${name}: ${value}`).join("\n");
  if (framework === "verl") return entries.map(([name, value]) => `${name}=${value}`).join(" \\\n");
  return entries.map(([name, value]) => (value === true ? `--${name}` : `--${name} ${value}`)).join(" \\\n");
}
