// The atlas: sliders for tau and pass rate, and where one exact step takes each loss. The numbers are explain's: tables.js.

import { slider } from "../common/controls.js";
import { mount, readout, scheduler, sentence } from "../common/figure.js";
import { onHash, readHash, writeHash } from "../common/hash.js";
import { number } from "../common/svg.js";
import { etaAt } from "../math/atlas.js";
import tables from "./tables.js";

const { rates, taus, losses } = tables;
const NAMES = Object.keys(losses);
const DEFAULTS = { tau: 0.1, p: 0.1 };
const LIMITS = { tau: [taus[0], taus.at(-1)], p: [rates[0], rates.at(-1)] };
mount("atlas", (body, timer) => {
  const explorer = { state: readHash(DEFAULTS) };
  const draw = scheduler(show, timer);
  const sliders = {
    tau: slider({
      label: "temperature τ (reward units)", key: "tau", min: LIMITS.tau[0], max: LIMITS.tau[1], log: true,
      value: explorer.state.tau, describe: (value) => `${value} reward units`, onInput: (tau) => change({ tau }),
    }),
    p: slider({
      label: "pass rate before the step, p", key: "p", min: LIMITS.p[0], max: LIMITS.p[1], log: true,
      value: explorer.state.p, describe: (value) => `pass rate ${value}`, onInput: (p) => change({ p }),
    }),
  };
  const table = readout("", NAMES.map((name) => [name, name]), [
    ["after", "pass rate after"], ["eta", "share of the gap closed"], ["right", "ratio of right"], ["wrong", "ratio of wrong"],
    ["kind", "kind"],
  ]);
  const words = sentence();
  body.append(sliders.tau.node, sliders.p.node, table.node, words.node);

  function change(part) {
    Object.assign(explorer.state, part);
    writeHash(explorer.state);
    draw();
  }

  function show() {
    for (const key of ["tau", "p"]) sliders[key].set(explorer.state[key]);
    const { tau, p } = { tau: sliders.tau.value, p: sliders.p.value };
    let most = null;
    let endless = 0;
    for (const name of NAMES) {
      const eta = etaAt(tables, name, tau, p);
      const rests = eta !== null;
      const after = rests ? 1 - (1 - eta) * (1 - p) : 1;
      table.show(name, "after", after, rests ? number(after) : "1, no rest");
      table.show(name, "eta", rests ? eta : NaN, rests ? number(eta) : "never rests");
      table.show(name, "right", rests ? after / p : NaN, rests ? number(after / p) : "–");
      table.show(name, "wrong", rests ? 1 - eta : NaN, rests ? number(1 - eta) : "–");
      table.show(name, "kind", NaN, losses[name].kind);
      if (!rests) endless += 1;
      else if (most === null || eta > most.eta) most = { name, eta };
    }
    const far = most === null ? "" : ` Of the others ${most.name} goes furthest: it closes ${number(most.eta)} of the gap to 1.`;
    words.say(`At p = ${number(p)} and τ = ${number(tau)}, ${endless} of ${NAMES.length} losses never rest.${far}`);
  }

  draw();
  onHash(() => change(readHash(DEFAULTS)));
});
