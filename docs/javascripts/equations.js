// Typesets the equations that the Markdown extension arithmatex marks, with the KaTeX that lies beside the pages.
// An element with data-tex shows the same in plain characters until then, for who has no JavaScript.
// Lets the keyboard scroll what is wider than the screen.

// our own pages may name a class for a term, such as the colour of a method
const options = {
  throwOnError: true,
  trust: ({ command }) => command === "\\htmlClass",
  strict: (code) => (code === "htmlExtension" ? "ignore" : "warn"),
};

document$.subscribe(({ body }) => {
  for (const element of body.querySelectorAll(".arithmatex")) {
    const source = element.textContent.trim();
    const display = source.startsWith("\\[");
    katex.render(source.slice(2, -2), element, { ...options, displayMode: display });
  }
  for (const element of body.querySelectorAll("[data-tex]")) {
    katex.render(`\\displaystyle ${element.dataset.tex}`, element, options);
  }
  // what scrolls inside itself, as wide equations and tables do on a phone, can be reached by the keyboard
  document.fonts.ready.then(() => {
    for (const element of body.querySelectorAll("div.arithmatex, .md-typeset__scrollwrap, p:has(> img.wide), .home-equation")) {
      if (element.scrollWidth > element.clientWidth) element.tabIndex = 0;
    }
  });
});
