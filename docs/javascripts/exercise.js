// Exercises of a lesson, answered on its page; the answers stay in this browser. Python runs in exercise-worker.js, which
// this file stops when an answer has used up its time. It is loaded when a reader begins to write, and once this browser
// has had a verdict, when an exercise comes into view: so it is there when it is asked. Nothing is loaded before.

import { kept } from "./follow.js";

const HOME = '<a href="#at-home">Run it in the notebook</a>';
const LOADS = "When you begin to write, Python and NumPy are loaded into your browser, about 10 MB; SciPy, if your code needs it, is 15 MB more.";
const KNOWN = "exercise-python"; // set once this browser has loaded it
const GRACE = 3; // seconds for Python to stop an answer by itself; then it is stopped from here, and starts again
let worker = null;
let before = Promise.resolve(); // the last verdict: there is one Python

const drop = () => {
  worker?.terminate();
  worker = kept.by = null;
};

const awake = () => {
  kept.by = import.meta.url;
  return (worker ??= new Worker(new URL("exercise-worker.js", import.meta.url), { type: "module" }));
};

const prepare = () => {
  if (worker !== null) return;
  awake().onerror = drop; // who asks for a verdict is told
  worker.postMessage([]);
};

/** A verdict as HTML. `stopped` holds the replies of an answer that ran out of time: what it has done is judged. */
const verdict = (which, cell, say, stopped) =>
  new Promise((done) => {
    const replies = [];
    let clock;
    const failed = (sentence) => {
      clearTimeout(clock);
      drop();
      done(`<p>${sentence} ${HOME}; your answer stays here.</p>`);
    };
    const on = {
      status: say,
      reply: (text) => replies.push(text),
      clock: (seconds) => {
        clearTimeout(clock);
        if (seconds === 0) return;
        clock = setTimeout(() => {
          drop();
          done(verdict(which, cell, say, replies));
        }, (seconds + GRACE) * 1000);
      },
      failed,
      verdict: done,
    };
    say("Python is starting.");
    awake().onmessage = ({ data: [kind, value] }) => on[kind](value);
    worker.onerror = () => failed("Python cannot be started in this browser.");
    worker.postMessage([which, cell, stopped]);
  });

/** Tab and Enter as in an editor of code. After Escape, Tab leaves the field, so that nobody is caught in it. */
const editing = (area) => {
  let leaving = false;
  const insert = (text) => document.execCommand("insertText", false, text); // the one way that can be undone
  area.addEventListener("keydown", (event) => {
    if (event.key === "Tab" && !leaving && !event.shiftKey) {
      event.preventDefault();
      insert("    ");
    }
    if (event.key === "Enter" && !event.isComposing) {
      event.preventDefault();
      const line = area.value.slice(0, area.selectionStart).split("\n").at(-1);
      insert(`\n${line.match(/^ */)[0]}${line.trimEnd().endsWith(":") ? "    " : ""}`);
    }
    leaving = event.key === "Escape";
  });
  area.addEventListener("input", () => (area.rows = area.value.split("\n").length + 1));
};

const open = (place) => {
  const which = place.dataset.exercise;
  const start = place.querySelector("pre code").textContent.trimEnd();
  const key = `exercise-${which}`;
  place.innerHTML = `
    <label for="${key}">Your answer to exercise ${which}</label>
    <textarea id="${key}" spellcheck="false" autocapitalize="off" autocomplete="off" autocorrect="off" wrap="off"
      aria-describedby="${key}-help"></textarea>
    <button type="button" class="exercise-check">Check my answer</button>
    <button type="button" class="exercise-again">Start again</button>
    <p class="exercise-help" id="${key}-help"><code>np</code> is NumPy, as in the lesson. ${LOADS} Tab indents; Esc, then Tab, leaves the field.</p>
    <div class="exercise-verdict" role="status"></div>`;
  const area = place.querySelector("textarea");
  const [check, again] = place.querySelectorAll("button");
  const told = place.querySelector(".exercise-verdict");
  area.value = localStorage.getItem(key) ?? start;
  editing(area);
  area.dispatchEvent(new Event("input"));
  area.addEventListener("input", () => localStorage.setItem(key, area.value));
  area.addEventListener("focus", prepare);
  again.addEventListener("click", () => {
    area.focus();
    area.select();
    document.execCommand("insertText", false, start);
    localStorage.removeItem(key);
    told.replaceChildren();
  });
  check.addEventListener("click", async () => {
    check.disabled = true;
    const ask = () => verdict(which, area.value, (text) => (told.textContent = text));
    told.innerHTML = await (before = before.then(ask));
    if (worker !== null) localStorage.setItem(KNOWN, "");
    if (told.textContent.startsWith("✓")) localStorage.setItem(`solved-${which}`, ""); // for the map of the lessons
    check.disabled = false;
  });
};

const near = new IntersectionObserver((seen) => seen.some((each) => each.isIntersecting) && prepare());
document$.subscribe(({ body }) => {
  near.disconnect();
  for (const place of body.querySelectorAll(".exercise")) {
    open(place);
    if (localStorage.getItem(KNOWN) !== null && !navigator.connection?.saveData) near.observe(place);
  }
});
