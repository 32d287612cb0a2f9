// "Train one": a transformer learns in the page. Controls and talk with the worker are here, the pictures in picture.js.

import { button, buttons, choice, slider } from "../common/controls.js";
import { mount, readout, scheduler, sentence, stage } from "../common/figure.js";
import { onHash, readHash, writeHash } from "../common/hash.js";
import { html, number, set, text } from "../common/svg.js";
import { answers, bars, curve } from "./picture.js";
import { BREAKS, DEFAULTS, LIMITS, OBJECTIVES, SLIDERS, about, percent, summary, tidy, titleOf } from "./state.js";

mount("train", (body, timer) => {
  const host = body.parentElement;
  const small = "small" in host.dataset; // on the home page: few controls, and the address stays as it is
  let state = small ? { ...DEFAULTS } : tidy(readHash(DEFAULTS));
  let [worker, screen, report, story, mending] = [null, null, null, "", null];
  const runs = []; // [step, pass rate] of every step; one list for each run, of which the last three are kept
  let count = 0; // of runs so far: a report of an earlier one comes too late
  const draw = scheduler(show, timer);
  const words = sentence();
  const [left, right, below] = [html("div", {}), html("div", {}), html("div", {}, words.node)];
  body.append(html("div", { class: "ex-columns" }, left, right, below));

  const play = button("Play", "play", () => ask(report?.playing ? "pause" : "play"));
  const again = button("Start again", "again", () => begin({}, ""));
  left.append(buttons("run", play, button("One step", "step", () => ask("step")), again));
  const still = host.querySelector(".explore-static img")?.cloneNode(true); // a recorded run, until this one plays
  if (still) left.append(still);

  const mend = button("", "mend", async () => {
    await begin(mending[1], "");
    ask("play");
  });
  right.append(buttons("things to break", ...BREAKS.map(([key, label, changes, says, way]) => (
    button(`Break it: ${label}`, `break-${key}`, async () => {
      await begin({ ...DEFAULTS, seed: state.seed, cell: state.cell, ...changes }, says);
      mending = way;
      ask("play");
    })
  )), mend));
  const objective = choice({
    label: "objective", key: "objective", value: state.objective, onInput: (value) => change({ objective: value }),
    options: OBJECTIVES.slice(0, small ? 4 : undefined).map((name) => [name, titleOf(name)]),
  });
  const formula = html("input", { class: "ex-field", "data-key": "formula", spellcheck: "false" });
  formula.addEventListener("change", () => change({ formula: formula.value }));
  const own = html("label", { class: "tr-own" }, "loss of an answer, from r, A, s and tau ", formula);
  right.append(objective.node, own);
  const controls = SLIDERS.slice(0, small ? 2 : undefined).map(([key, label, kind, note]) => {
    const [min, max] = LIMITS[key];
    const onInput = (value) => change({ [key]: value });
    const control = slider({ label, key, min, max, value: state[key], onInput, ...kind });
    right.append(control.node, ...(note && !small ? [html("p", { class: "tr-note" }, note)] : []));
    return [key, control];
  });
  const table = readout("This step", [["step", ""]], [
    ["step", "step"], ["was", "before"], ["rate", "after"], ["exact", "exact step"], ["entropy", "entropy (nats)"],
  ]);
  below.append(table.node);

  /** The pictures take the place of the recorded one: at the first press, not before. */
  async function open() {
    const band = await fetch(new URL("band.json", import.meta.url)).then((answer) => answer.json());
    const parts = { grid: answers((cell) => change({ cell })), curve: curve(band), bars: bars() };
    parts.title = html("p", { class: "tr-title" });
    still?.remove();
    left.append(parts.grid.node);
    stage(small ? right : left, "Pass rate by step", () => 190, (...size) => (parts.curve.layout(...size), draw()));
    below.append(parts.title);
    stage(below, "Probabilities of the answers to one sum", () => 170, (...size) => (parts.bars.layout(...size), draw()));
    return parts;
  }

  function start() {
    worker ??= Object.assign(new Worker(new URL("worker.js", import.meta.url), { type: "module" }), {
      onmessage: ({ data }) => hear(data),
      onerror(event) {
        event.preventDefault();
        worker.terminate();
        worker = null;
        trouble(`The worker stopped: ${event.message ?? "it could not be loaded"}. Play begins a new run.`);
      },
    });
    runs.push([]);
    runs.splice(0, runs.length - 3);
    send("start", (count += 1));
  }

  const send = (kind) => worker.postMessage({ kind, count, options: { ...state } });

  async function ask(kind) {
    try {
      screen ??= open();
      screen = await screen;
      if (worker === null) start();
      if (kind !== "start") send(kind);
    } catch (error) {
      screen = screen instanceof Promise ? null : screen;
      trouble(`The page could not begin: ${error.message}.`);
    }
  }

  /** A new run with some changes; what the last one did stays as a thin line. */
  async function begin(changes, says) {
    const before = worker;
    [story, mending] = [says, null];
    change(changes, false);
    story = says;
    await ask("start");
    if (before !== null && worker === before) start();
  }

  function hear(data) {
    if (data.count !== count) return;
    if (data.error) {
      trouble(data.error);
      return;
    }
    report = data;
    runs.at(-1).push(...data.rates);
    draw();
  }

  function trouble(said) {
    story = said;
    if (report) report = { ...report, playing: false };
    draw();
  }

  function change(part, tell = true) {
    const before = state;
    state = tidy({ ...state, ...part });
    if (!small) writeHash(state);
    if (!("cell" in part)) story = "";
    if (tell && worker !== null) {
      if (["gain", "seed"].some((key) => state[key] !== before[key])) begin({}, "");
      else if (!("cell" in part)) send("change");
    }
    draw();
  }

  function show() {
    for (const [key, control] of controls) control.set(state[key]);
    objective.set(state.objective);
    set(own, { hidden: state.objective !== "own" });
    if (document.activeElement !== formula) formula.value = state.formula;
    text(play, report?.playing ? "Pause" : "Play");
    set(mend, { hidden: mending === null });
    text(mend, mending?.[0] ?? "");
    if (report === null || screen === null || screen instanceof Promise) {
      words.say(`${story} Press Play: a transformer of 99,008 weights begins to learn in this tab.`.trim());
      return;
    }
    const { policy, old, groups, was, step, rate, entropy } = report;
    screen.grid.draw(policy, state.cell);
    screen.curve.draw(runs);
    screen.bars.draw(state.cell, old[state.cell], policy[state.cell], groups[state.cell]);
    text(screen.title, about(state.cell, groups[state.cell]));
    words.say(`${story} ${summary(report, state)}`.trim());
    for (const [key, value] of Object.entries({ was: was?.rate, rate, exact: was?.exact })) {
      table.show("step", key, value ?? NaN, value === undefined || value === null ? "–" : percent(value));
    }
    table.show("step", "step", step, String(step));
    table.show("step", "entropy", entropy, number(entropy));
  }

  show();
  if (!small) onHash(() => change(readHash(DEFAULTS)));
});
