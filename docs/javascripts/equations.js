// Typesets the equations that the Markdown extension arithmatex marks, with the KaTeX that lies beside the pages.
document$.subscribe(({ body }) => {
  for (const element of body.querySelectorAll(".arithmatex")) {
    const source = element.textContent.trim();
    const display = source.startsWith("\\[");
    katex.render(source.slice(2, -2), element, { displayMode: display, throwOnError: true });
  }
});
