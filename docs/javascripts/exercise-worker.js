// Python for the exercises of a lesson: Pyodide, NumPy and the course's own judge, pmdkit_course/page.py. The version is
// pinned here alone. Its files come from the address that Pyodide names, and are not kept beside the site: 25 MB.
const PYODIDE = "https://cdn.jsdelivr.net/pyodide/v314.0.7/full/";
let end = Infinity; // when the time of an answer is up
// Python looks here between two steps. Its signal 2 stops the answer and nothing else; a bare `except:` gets it again.
const interrupt = {
  get 0() {
    if (performance.now() < end) return 0;
    end += 1000;
    return 2;
  },
  set 0(taken) {},
};
const say = (kind, value) => {
  if (kind === "clock") end = value === 0 ? Infinity : performance.now() + value * 1000;
  postMessage([kind, value]);
};
const nothing = { stdin: () => null, stdout: () => {}, stderr: () => {} }; // of what an answer prints

/** Load packages whose files have the hashes that this version of Pyodide lists. */
const load = async (pyodide, names) => {
  await pyodide.loadPackage(names, { checkIntegrity: true, messageCallback: () => {}, errorCallback: () => {} });
  const missing = names.filter((name) => !(name in pyodide.loadedPackages));
  if (missing.length > 0) throw new Error(`${missing} did not load`);
};

const start = async () => {
  say("status", "Loading Python and NumPy, about 10 MB. Your browser may keep them for the next time.");
  const { loadPyodide } = await import(`${PYODIDE}pyodide.mjs`);
  const pyodide = await loadPyodide({ indexURL: PYODIDE, ...nothing });
  pyodide.setInterruptBuffer(interrupt);
  await load(pyodide, ["numpy"]);
  const judge = await fetch(new URL("../learn/lessons/judge.zip", import.meta.url));
  if (!judge.ok) throw new Error(`judge.zip: ${judge.status}`);
  pyodide.unpackArchive(await judge.arrayBuffer(), "zip", { extractDir: "/judge" });
  pyodide.runPython("import sys; sys.path.insert(0, '/judge')");
  return { pyodide, page: pyodide.pyimport("pmdkit_course.page") };
};

let starting;
const python = () => (starting ??= start().catch((problem) => {
  starting = undefined; // the next question tries again
  throw problem;
}));

onmessage = async ({ data: [which, cell, stopped] }) => {
  try {
    const { pyodide, page } = await python();
    if (which === undefined) return; // Python is to be there in time, and nothing is asked yet
    const names = page.packages(which, cell).toJs();
    if (names.some((name) => !(name in pyodide.loadedPackages))) say("status", "Loading SciPy, about 15 MB.");
    await load(pyodide, names);
  } catch (problem) {
    console.info(`${problem}`);
    if (which === undefined) return;
    say("failed", "Python, with NumPy and SciPy, could not be loaded from cdn.jsdelivr.net, so this page cannot judge your answer.");
    return;
  }
  try {
    say("status", "Running your answer.");
    say("verdict", (await python()).page.check(which, cell, say, stopped));
  } catch (problem) {
    console.info(`${problem}`);
    say("failed", "Python itself stopped.");
  }
};
