// Trains in a worker of its own, one step at a time, and listens between steps. main.js sends { kind, count, options }.

import { Learner } from "../math/learner.js";

const PAUSE = 50; // ms between two reports at least: 20 pictures a second
let [learner, run, left, waiting, told, rates] = [null, 0, 0, 0, 0, []];

function tell() {
  postMessage({ ...learner.report(), count: run, rates, playing: left > 0 });
  [told, rates] = [performance.now(), []];
}

function refuse(error) {
  left = 0;
  postMessage({ count: run, error: error.message });
}

function next() {
  waiting = 0;
  if (left === 0) return;
  try {
    learner.step();
  } catch (error) {
    refuse(error);
    return;
  }
  left -= 1;
  rates.push([learner.steps, learner.rate()]);
  if (left === 0 || performance.now() - told > PAUSE) tell();
  waiting = setTimeout(next);
}

addEventListener("message", ({ data: { kind, count, options } }) => {
  try {
    if (kind === "start") {
      [run, left] = [count, 0];
      learner = new Learner(options);
      rates = [[0, learner.rate()]];
    } else learner.change(options);
  } catch (error) { // a formula that does not parse: what was there stays
    refuse(error);
    return;
  }
  left = { start: 0, pause: 0, step: 1, play: Infinity }[kind] ?? left;
  if (left > 0 && waiting === 0) waiting = setTimeout(next);
  if (left === 0) tell();
});
