// The simplex on the first page of the site: one step, a policy to drag, a temperature to slide. The rest is ../simplex/.

import { slider } from "../common/controls.js";
import { mount, scheduler, sentence, stage } from "../common/figure.js";
import { decimals, number } from "../common/svg.js";
import { mean } from "../math/pmd.js";
import { START, TAU, solver } from "../simplex/solve.js";
import { heightFor, triangle } from "../simplex/triangle.js";

const COUNT = { 1: "One action beats", 2: "Two actions beat" };

mount("home", (body, timer) => {
  const explorer = { state: { ...START, show: "none" }, touched: false, change };
  const picture = triangle(explorer);
  const solve = solver();
  const draw = scheduler(show, timer);
  const words = sentence();
  const tau = slider({
    label: "temperature τ (reward units)", key: "tau", min: TAU[0], max: TAU[1], value: explorer.state.tau, log: true,
    describe: (value) => `${value} reward units`, onInput: (value) => change({ tau: value }),
  });
  stage(body, "Triangle of policies over three actions", heightFor, (...size) => (picture.layout(...size), draw()));
  body.append(tau.node, words.node);

  function change(part) {
    explorer.touched = true;
    Object.assign(explorer.state, part);
    draw();
  }

  function show() {
    const seen = solve(explorer.state);
    picture.draw(explorer.state, { ...seen, touched: explorer.touched });
    words.say(summary(explorer.state, seen));
  }
});

function summary({ pi, r, tau }, { paths }) {
  const now = mean(pi, r);
  const better = r.filter((value) => value > now).length;
  const step = `One step at τ = ${number(tau)} takes the mean reward from ${decimals(now, 2)} to `
    + `${decimals(paths.part[1].value, 2)} with PMD-part and to ${decimals(paths.mean[1].value, 2)} with PMD-mean.`;
  const end = better === 1 ? "so both paths end there as τ falls" : "so the path of PMD-mean ends between them, however small τ is";
  return `${step} ${COUNT[better]} the mean, ${end}.`;
}
