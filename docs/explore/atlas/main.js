// The atlas: a map of losses, sliders for tau and pass rate, and a table at both. The numbers are explain's: tables.js.

import { slider } from "../common/controls.js";
import { mount, readout, scheduler, sentence, stage } from "../common/figure.js";
import { onHash, readHash, writeHash } from "../common/hash.js";
import { html, number, set } from "../common/svg.js";
import { etaAt } from "../math/atlas.js";
import { NAMED, heightFor, map } from "./map.js";
import tables from "./tables.js";

const { rates, taus, losses, facts, families } = tables;
const NAMES = Object.keys(losses);
const page = (name) => new URL(`../../api/objectives/#${facts[name].anchor}`, import.meta.url.replace(/[^/]*$/, "")).href;
const paint = (name) => `--at: var(${NAMED[name]?.colour ?? `--at-${facts[name].colour.slice(1)}`})`;
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
  const card = html("div", { class: "at-card" });
  const picture = map(tables, paint, see, (name) => location.assign(page(name)));
  const [left, right, below] = [html("div", {}, sliders.tau.node), html("div", {}, card, list(see)), html("div", {})];
  body.append(html("div", { class: "ex-columns" }, left, right, below));
  const view = stage(left, "Share of the gap closed against the pass rate, a line for each loss; the list below has the same",
    heightFor, (...size) => (picture.layout(...size), draw()));
  below.append(sliders.p.node, words.node, table.node);
  see([], NaN);

  /** Bring losses forward and say what they are: their names, and the equation of the first. */
  function see(names, p) {
    const key = [...names, number(p)].join();
    if (key === card.dataset.seen) return;
    card.dataset.seen = key;
    picture.light(names);
    set(view, { "data-over": names.length > 0 });
    const [name, ...others] = names;
    set(card, { style: name ? paint(name) : null });
    if (!name) return card.replaceChildren(html("p", {}, "Point at a line, or at a name below: what it is. A click leads to its page."));
    const eta = Number.isNaN(p) ? undefined : etaAt(tables, name, sliders.tau.value, p);
    const here = eta === undefined ? "" : eta === null ? ` At pass rate ${number(p)} it never rests.`
      : ` At pass rate ${number(p)} it closes ${number(eta)} of the gap.`;
    const { family, says, options, equation } = facts[name];
    const formula = html("div", {});
    katex.render(equation, formula, { displayMode: true, throwOnError: false });
    card.replaceChildren(
      html("p", {}, html("a", { href: page(name) }, html("b", {}, name)), ` (${family}${options && `; ${options}`}). ${says}${here}`),
      formula,
      ...(others.length ? [html("p", {}, "Also here: ", ...others.flatMap((each, k) => [k ? ", " : "", html("a", { href: page(each) }, each)]))] : []),
    );
    if (formula.scrollWidth > formula.clientWidth) formula.tabIndex = 0; // the keyboard scrolls it
  }

  function change(part) {
    Object.assign(explorer.state, part);
    writeHash(explorer.state);
    draw();
  }

  function show() {
    for (const key of ["tau", "p"]) sliders[key].set(explorer.state[key]);
    const { tau, p } = { tau: sliders.tau.value, p: sliders.p.value };
    picture.draw(tau, p);
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

/** The losses by family, each a link to its page; pointed at or reached by the keyboard, its line comes forward. */
function list(see) {
  const node = html("div", { class: "at-families" });
  for (const family of families) {
    const names = NAMES.filter((name) => facts[name].family === family);
    node.append(html("p", { style: paint(names[0]) }, html("b", {}, family),
      ...names.flatMap((name) => [html("a", { href: page(name), "data-loss": name }, name), " "])));
  }
  for (const kind of ["pointerover", "focusin"]) {
    node.addEventListener(kind, ({ target }) => { if (target.dataset.loss) see([target.dataset.loss], NaN); });
  }
  return node;
}
