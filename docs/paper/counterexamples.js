// A slider or two under every row of the ledger where the paper is contradicted or misprinted. Labels, limits and constants come with the page.

import { slider } from "../explore/common/controls.js";
import { mount, readout, scheduler, sentence } from "../explore/common/figure.js";
import { number } from "../explore/common/svg.js";
import { NUMBERS } from "../explore/math/counterexamples.js";

for (const host of document.querySelectorAll("[data-counterexample]")) {
  const { id, sliders, rows, constants } = JSON.parse(host.dataset.counterexample);
  mount(host.dataset.explore, (body, timer) => {
    const values = Object.fromEntries(sliders.map(({ key, value }) => [key, value]));
    const table = readout("", rows, [["value", "value"]]);
    const words = sentence();
    words.node.firstChild.hidden = true; // the table says it to who sees; the sentence is for who listens
    const draw = scheduler(show, timer);
    for (const each of sliders) {
      const { node } = slider({
        ...each,
        describe: (value) => `${each.label}: ${value}`,
        onInput: (value) => {
          values[each.key] = value;
          draw();
        },
      });
      body.append(node);
    }
    body.append(table.node, words.node);

    function show() {
      const found = NUMBERS[id](values, constants);
      for (const [key] of rows) table.show(key, "value", found[key], number(found[key]));
      words.say(rows.map(([key, name]) => `${name}: ${number(found[key])}`).join("; "));
    }

    show();
  });
}
