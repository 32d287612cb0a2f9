// Filters the rows of the ledger by verdict, evidence, kind, section and words; the text between them is hidden while it does,
// and headings without a row.

const form = document.querySelector("form.claims-filter");
const rows = [...document.querySelectorAll("details.claim")];
const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));

function show() {
  const chosen = new FormData(form);
  const classes = ["verdict", "evidence", "kind", "section"].filter((name) => chosen.get(name)).map((name) => `${name}-${chosen.get(name)}`);
  const words = chosen.get("words").toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  for (const row of rows) {
    const fits = classes.every((name) => row.classList.contains(name)) && words.every((word) => texts.get(row).includes(word));
    row.hidden = !fits;
    count += fits;
  }
  const filtered = classes.length + words.length > 0;
  form.parentElement.classList.toggle("claims-filtered", filtered);
  let heading = null;
  for (const element of form.parentElement.children) {
    if (element.tagName === "H2") (heading = element).hidden = filtered;
    else if (heading && element.matches("details.claim:not([hidden])")) heading.hidden = false;
  }
  form.querySelector("output").value = `${count} of ${rows.length} rows`;
}

form.hidden = false;
form.addEventListener("input", show);
form.addEventListener("submit", (event) => event.preventDefault());
show();
