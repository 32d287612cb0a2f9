// docs/finish.py moves the folded code of a long page into code.html beside it, and writes this into the page: what is
// opened comes back to its place. Without JavaScript a link leads there.
{
  let code;
  const show = async ({ target }) => {
    const link = target.open && target.querySelector(':scope > p > a[href^="code.html#"]');
    if (!link) return;
    code ??= fetch(link.href).then((answer) => answer.text());
    const blocks = new DOMParser().parseFromString(await code, "text/html");
    link.parentElement.replaceWith(blocks.querySelector(link.hash));
  };
  document.addEventListener("toggle", show, true);
}
