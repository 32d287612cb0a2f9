// One button for all folded code of a lesson. What was chosen holds for the next lesson too, until the window is closed.
document$.subscribe(({ body }) => {
  const folds = [...body.querySelectorAll("details.lesson-code")];
  const title = body.querySelector(".md-content h1");
  if (folds.length === 0 || title === null) return;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "lesson-open";
  const show = (open) => {
    for (const fold of folds) fold.open = open;
    button.setAttribute("aria-pressed", open);
    button.textContent = open ? "Fold all code" : "Show all code";
  };
  button.addEventListener("click", () => {
    const open = button.getAttribute("aria-pressed") !== "true";
    sessionStorage.setItem("lesson-code", open ? "open" : "");
    show(open);
  });
  show(sessionStorage.getItem("lesson-code") === "open");
  title.after(button);
});
