// Follows links between lessons inside one document for as long as Python runs in it: a new document would start it again,
// and take half a minute. Until then, and on all other pages, a link is a link.

export const kept = { by: null }; // the address of the module that holds Python; null while none runs
const LESSONS = /\/learn\/(lessons\/\d+\/)?$/;
const PARTS = ["data-md-component=container", "data-md-component=header-topic", "data-md-component=logo",
  "data-md-component=skip", "rel=prev", "rel=next"].map((name) => `[${name}]`); // the last two are for the theme's keys
const AROUND = "head script[src], head link[rel=stylesheet], body > script[src]"; // KaTeX, where a lesson has equations
let shown = location.pathname;
let count = 0; // of pages asked for: the last one is shown

/** Loads what stands around a page and is not here yet. `address` turns its relative addresses into whole ones. */
const around = (page, address) => Promise.all([...page.querySelectorAll(AROUND)].map((part) => {
  const name = part.src === undefined ? "href" : "src";
  const whole = new URL(part.getAttribute(name), address).href;
  if ([...document.querySelectorAll(AROUND)].some((here) => here[name] === whole)) return null;
  const added = Object.assign(document.createElement(part.localName), { [name]: whole, rel: part.rel });
  return new Promise((onload, onerror) => document.head.append(Object.assign(added, { onload, onerror })));
}));

/** Shows the page at an address; `enter` is called as soon as all of it is there. False if another came in between. */
const show = async (address, enter) => {
  const turn = (count += 1);
  const answer = await fetch(address);
  if (!answer.ok) throw new Error(`${address}: ${answer.status}`);
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  await around(page, address);
  if (turn !== count) return false;
  enter();
  shown = location.pathname;
  document.title = page.title;
  for (const part of PARTS) document.querySelector(part)?.replaceWith(page.querySelector(part) ?? "");
  document$.next(document); // the theme and our own scripts begin as on a new page
  location$.next(new URL(location.href)); // closes the menu of a phone, and the search
  scrollTo(0, 0);
  const title = document.querySelector("h1");
  Object.assign(title, { tabIndex: -1, style: "outline: none" });
  title.focus({ preventScroll: true }); // what a screen reader says next
  // a module runs once for each address: explorables get a new one, and the module that holds Python lives on
  const modules = [...document.querySelectorAll("[data-md-component=container] script[type=module]")];
  await Promise.all(modules.map(({ src }) => import(src === kept.by ? src : `${src}?${turn}`)));
  return true;
};

document.addEventListener("click", async (event) => {
  const link = event.target.closest?.("a[href]");
  if (kept.by === null || link === null || event.defaultPrevented || event.button !== 0) return;
  if (link.target || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  const { href, origin, pathname, hash } = link;
  if (origin !== location.origin || pathname === shown || !LESSONS.test(pathname) || !LESSONS.test(shown)) return;
  event.preventDefault();
  try {
    const here = await show(href, () => history.pushState(null, "", href));
    if (here && hash) location.replace(href); // goes to the place and marks it as the target
  } catch (problem) {
    console.info(`${problem}`);
    location.assign(href);
  }
});

addEventListener("popstate", async ({ state }) => {
  if (location.pathname === shown) {
    count += 1; // what was asked for is not wanted any more
    return;
  }
  try {
    if (kept.by === null) throw new Error("Python does not run any more");
    if (await show(location.href, () => {})) scrollTo(0, state?.y ?? 0);
  } catch (problem) {
    console.info(`${problem}`);
    location.reload(); // so it is also after a reload, which leaves the entries of the history as they were
  }
});

let pause = 0;
addEventListener("scroll", () => {
  clearTimeout(pause);
  if (kept.by === null) return;
  pause = setTimeout(() => history.replaceState({ ...history.state, y: scrollY }, ""), 100);
});
