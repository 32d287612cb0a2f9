// Exercises of a lesson, answered on its page. Nothing is loaded before a reader asks for a verdict; the answers stay in
// this browser. Python runs in exercise-worker.js, which this file stops when an answer has used up its time.

const HOME = '<a href="#at-home">Run it in the notebook</a>';
const LOADS = "The first time, this loads Python and NumPy into your browser, about 10 MB; SciPy, if your code needs it, is 15 MB more.";
let worker = null;

const drop = () => {
  worker?.terminate();
  worker = null;
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
        }, seconds * 1000);
      },
      failed,
      verdict: done,
    };
    worker ??= new Worker(new URL("exercise-worker.js", import.meta.url), { type: "module" });
    worker.onmessage = ({ data: [kind, value] }) => on[kind](value);
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
    <p class="exercise-help" id="${key}-help">${LOADS} Tab indents; Esc, then Tab, leaves the field.</p>
    <div class="exercise-verdict" role="status"></div>`;
  const area = place.querySelector("textarea");
  const [check, again] = place.querySelectorAll("button");
  const told = place.querySelector(".exercise-verdict");
  area.value = localStorage.getItem(key) ?? start;
  editing(area);
  area.dispatchEvent(new Event("input"));
  area.addEventListener("input", () => localStorage.setItem(key, area.value));
  again.addEventListener("click", () => {
    area.focus();
    area.select();
    document.execCommand("insertText", false, start);
    localStorage.removeItem(key);
    told.replaceChildren();
  });
  check.addEventListener("click", async () => {
    const buttons = document.querySelectorAll(".exercise-check");
    for (const button of buttons) button.disabled = true; // there is one Python
    told.innerHTML = await verdict(which, area.value, (text) => (told.textContent = text));
    for (const button of buttons) button.disabled = false;
  });
};

document.querySelectorAll(".exercise").forEach(open);
