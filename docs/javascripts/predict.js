// Questions of a lesson: what follows them is dimmed until they are answered, or passed over. Answers stay in this browser.
/** Words (without code), pictures and exercises, and the minutes to read them by the rule in tutorials/README.md. */
const lengthOf = (rest) => {
  const end = rest.findIndex((one) => one.id === "exercise");
  const elements = end < 0 ? rest : rest.slice(0, end);
  const wordsIn = (some) => some.flatMap((one) => one.textContent.split(/\s+/)).length;
  const all = (selector) => elements.flatMap((one) => [...one.querySelectorAll(selector)]);
  const formulas = [...elements.filter((one) => one.matches(".arithmatex")), ...all(".arithmatex")];
  const words = wordsIn(elements.filter((one) => !one.matches("details, .highlight"))) - wordsIn(formulas);
  const pictures = all("img").length;
  const exercises = rest.filter((one) => /^Exercise \d{3}\.\d/.test(one.textContent)).length;
  const minutes = Math.round(words / 100 + pictures + formulas.length / 6);
  return `${words.toLocaleString("en")} words, ${pictures} pictures and ${exercises} exercises, about ${minutes} minutes to read`;
};

document$.subscribe(({ body }) => {
  const block = body.querySelector(".predictions");
  if (block === null) return;
  const forms = [...block.querySelectorAll("form.predict")];
  const rest = [];
  for (let next = block.nextElementSibling; next !== null; next = next.nextElementSibling) rest.push(next);
  const key = (form) => `predict-${form.dataset.predict}`;

  const skip = document.createElement("button");
  skip.type = "button";
  skip.className = "predict-skip";
  skip.textContent = "Go on without an answer";
  const length = document.createElement("p");
  length.className = "predict-length";
  length.textContent = `Below, dimmed until you answer: ${lengthOf(rest)}.`;
  block.append(skip, length);

  const show = (all) => {
    const open = all || forms.every((form) => form.dataset.answered !== undefined);
    for (const element of rest) {
      element.classList.toggle("predict-later", !open);
      element.inert = !open;
    }
    skip.hidden = length.hidden = open;
    if (open) forms.forEach(reveal);
  };
  const reveal = (form) => {
    form.classList.add("predict-told");
    form.dispatchEvent(new Event("predict-told")); // for explore/predict/main.js, which draws the answer
  };
  const tell = (form, value) => {
    form.dataset.answered = value;
    reveal(form);
    for (const input of form.querySelectorAll("input")) {
      input.checked = input.value === value;
      const mark = input.value === form.dataset.right ? "right" : input.checked ? "wrong" : "";
      input.parentElement.dataset.mark = mark;
    }
  };

  for (const form of forms) {
    const before = localStorage.getItem(key(form));
    if (before !== null) tell(form, before);
    form.addEventListener("change", (event) => {
      if (form.dataset.answered === undefined) localStorage.setItem(key(form), event.target.value);
      tell(form, form.dataset.answered ?? event.target.value); // the first answer stands
      show(false);
    });
    form.addEventListener("predict-guess", ({ detail }) => {
      if (form.classList.contains("predict-told")) return;
      localStorage.setItem(key(form), detail);
      tell(form, detail);
      show(false);
    });
    form.addEventListener("submit", (event) => event.preventDefault());
  }
  skip.addEventListener("click", () => show(true));
  // a link into what is dimmed, from the menu or from elsewhere, opens it
  const linked = () => {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target && target.closest(".predict-later")) {
      show(true);
      target.scrollIntoView();
    }
  };
  addEventListener("hashchange", linked);
  show(false);
  linked();
});
