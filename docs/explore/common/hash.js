// The state of an explorable in the address, after "#": a lecturer links to a setting. Nothing is drawn here.

/**
 * Reads a state from the address; what is missing or unreadable keeps its default.
 * @param {Object<string, number|number[]|string>} defaults
 * @returns {Object} a new object with the keys of `defaults`
 */
export function readHash(defaults) {
  const given = new URLSearchParams(location.hash.slice(1));
  const state = structuredClone(defaults);
  for (const [key, value] of Object.entries(defaults)) {
    const words = given.get(key);
    if (words === null) continue;
    if (typeof value === "string") state[key] = words;
    else {
      const numbers = words.split(",").map((word) => (word === "" ? NaN : Number(word)));
      if (!numbers.every(Number.isFinite)) continue;
      if (Array.isArray(value) && numbers.length === value.length) state[key] = numbers;
      else if (!Array.isArray(value) && numbers.length === 1) state[key] = numbers[0];
    }
  }
  return state;
}

let timer = 0;

/** Writes a state into the address, without a new entry in the history; waits for a pause in the changes. */
export function writeHash(state) {
  clearTimeout(timer);
  const here = location.pathname; // a lesson may show another one by then
  timer = setTimeout(() => here === location.pathname && history.replaceState(history.state, "", `#${toHash(state)}`), 250);
}

/** "tau=0.2&pi=0.6,0.3,0.1" */
export function toHash(state) {
  const short = (value) => (typeof value === "number" ? String(Number(value.toPrecision(6))) : value);
  return Object.entries(state)
    .map(([key, value]) => `${key}=${Array.isArray(value) ? value.map(short).join(",") : encodeURIComponent(short(value))}`)
    .join("&");
}

/** Calls `apply` when the reader changes the state after "#", for example by a link on the page; not for a heading. */
export function onHash(apply) {
  const here = location.pathname;
  addEventListener("hashchange", () => here === location.pathname && /^$|=/.test(location.hash) && apply());
}
