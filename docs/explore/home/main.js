// The biography on the first page of the site: a sum, sixteen answers, a step to drag, three objectives. The rest is
// ../biography/.

import { cells, stripOf } from "../biography/rows.js";
import { summary } from "../biography/words.js";
import { choice, slider } from "../common/controls.js";
import { mount, scheduler, sentence, stage } from "../common/figure.js";
import { html, text } from "../common/svg.js";
import { TITLES } from "../losses/state.js";
import { pushes } from "../math/recorded.js";
import tables from "../biography/tables.js";

const ASKED = ["pmd-mean", "pmd-part", "grpo"];
const run = await fetch(new URL("../biography/biography.json", import.meta.url)).then((answer) => answer.json());

mount("home", (body, timer) => {
  const state = { prompt: run.prompts[1].name, step: 2, objective: run.objective.name };
  const draw = scheduler(show, timer);
  const change = (part) => draw(Object.assign(state, part));
  const groups = () => run.prompts.find((prompt) => prompt.name === state.prompt).groups;
  const steps = groups().map((group) => group.step);

  const [left, right] = [html("div", {}), html("div", { class: "bi-list" })];
  const one = (label, key, names) => choice({
    label, key, value: state[key], options: names, onInput: (value) => change({ [key]: value }),
  });
  const step = slider({
    label: "step of the run", key: "step", min: steps[0], max: steps.at(-1), value: state.step, whole: true,
    describe: (value) => `step ${value}`, onInput: (value) => change({ step: value }),
  });
  const strip = stripOf((value) => change({ step: Math.min(Math.max(value, steps[0]), steps.at(-1)) }));
  const words = sentence();
  body.append(html("div", { class: "ex-columns" }, left, right));
  left.append(one("the prompt", "prompt", run.prompts.map(({ name }) => [name, name])).node, step.node);
  stage(left, "Share of right responses by step", () => 130, (...size) => (strip.layout(...size), draw()));
  left.append(one("the objective", "objective", ASKED.map((name) => [name, TITLES[name]])).node, words.node);

  function show() {
    const group = groups().find((each) => each.step === state.step);
    const name = state.objective;
    const options = { ...tables[name].options, ...(name === run.objective.name ? run.objective : {}), name };
    if ("tau" in options) options.tau = run.objective.tau; // the same for all
    const found = pushes(group, run, options, "after");
    step.set(state.step);
    strip.draw(groups(), state.step, run.passed);
    words.say(summary(group, found, run, options, TITLES[name], ""));
    right.replaceChildren(...cells(group, found.rows, run.passed).map(({ verdict, words: response, push }) => {
      text(response, response.textContent.replace(/<\|im_end\|>$/, ""));
      return html("div", { class: "bi-row" }, verdict, response, push);
    }));
  }
});
