// Typesets the equations that the Markdown extension arithmatex marks, with the KaTeX that lies beside the pages.
// Lets the keyboard scroll what is wider than the screen.
document$.subscribe(({ body }) => {
  for (const element of body.querySelectorAll(".arithmatex")) {
    const source = element.textContent.trim();
    const display = source.startsWith("\\[");
    katex.render(source.slice(2, -2), element, { displayMode: display, throwOnError: true });
  }
  // what scrolls inside itself, as wide equations and tables do on a phone, can be reached by the keyboard
  document.fonts.ready.then(() => {
    for (const element of body.querySelectorAll("div.arithmatex, .md-typeset__scrollwrap")) {
      if (element.scrollWidth > element.clientWidth) element.tabIndex = 0;
    }
  });
});
