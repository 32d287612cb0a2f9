"""A lesson as an HTML page to print, or to read without Jupyter. It loads nothing from elsewhere."""

import copy
import html
import re
import shutil
from pathlib import Path
from typing import Any

import nbformat

ALT = re.compile(r"\A# alt: (.*(?:\n#   .*)*)\n")
PICTURES = "%config InlineBackend.figure_formats = ['retina']"
STYLE = """
@page { margin: 18mm }
body { font: 11pt/1.5 Georgia, serif; max-width: 44rem; margin: 2rem auto; padding: 0 1rem }
body { color: #111; background: #fff }
h1, h2, h3 { font-family: Helvetica, Arial, sans-serif; line-height: 1.2; break-after: avoid }
a { color: inherit }
code, pre { font: 9pt/1.4 Menlo, Consolas, "DejaVu Sans Mono", monospace }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: 0.5em 0; padding: 0.5em 0.8em }
pre { border-left: 3px solid #bbb }
.output_area pre { border-left-color: #0072b2 }
.cell, .output_area, pre, img { break-inside: avoid }
img { max-width: 100% }
table { border-collapse: collapse } td, th { padding: 0.2em 0.6em; border-bottom: 1px solid #bbb; text-align: left }
.katex { font-size: 1.08em }
.math-block { display: block; margin: 0.8em 0; text-align: center; overflow-x: auto }
.anchor-link { display: none }
@media print { body { margin: 0; max-width: none } }
"""
TYPESET = """
for (const e of document.querySelectorAll(".math-inline, .math-block"))
  katex.render(e.textContent, e, { displayMode: e.className === "math-block", throwOnError: false });
"""


def write_page(lesson: Any, path: Path, katex: Path | None, execute: bool) -> None:
    """Write a lesson as HTML, executed first if asked. The notebook is not changed.

    The folder with katex.min.js is copied beside the page; without it, equations stay in their source form.
    """
    notebook = executed(lesson) if execute else copy.deepcopy(lesson)
    for cell in notebook.cells:
        found = ALT.match(cell.source)
        if cell.cell_type == "code" and found:
            cell.metadata["alt"] = " ".join(found[1].replace("\n#", " ").split())
            cell.source = cell.source[found.end() :]
    if katex is not None and not (path.parent / "katex").exists():
        shutil.copytree(katex, path.parent / "katex")
    path.write_text(page(notebook, katex is not None), encoding="utf-8")


def page(notebook: Any, typeset: bool) -> str:
    """The whole page as HTML."""
    from nbconvert.exporters.html import HTMLExporter  # slow to import
    from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath, markdown2html_mistune
    from pygments.formatters import HtmlFormatter  # type: ignore[import-untyped]

    bw = HtmlFormatter(style="bw")

    class Renderer(IPythonRenderer):
        """Marks equations for KaTeX."""

        def block_math(self, body: str) -> str:
            return f'<span class="math-block">{html.escape(body)}</span>'

        def inline_math(self, body: str) -> str:
            return f'<span class="math-inline">{html.escape(body)}</span>'

    def markdown(source: str) -> str:
        shown = re.sub(r"<!--.*?-->", "", source, flags=re.DOTALL)  # comments by which a lesson's claims are checked
        return str(MarkdownWithMath(renderer=Renderer(escape=False)).render(shown))

    exporter = HTMLExporter(template_name="basic", exclude_input_prompt=True, exclude_output_prompt=True)
    exporter.register_filter("markdown2html", markdown if typeset else markdown2html_mistune)
    body, _ = exporter.from_notebook_node(notebook)
    title = notebook.cells[0].source.splitlines()[0].removeprefix("# ")
    head = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
        f"<title>{html.escape(title)}</title>",
        '<link rel="stylesheet" href="katex/katex.min.css">' if typeset else "",
        f"<style>{STYLE}\n{bw.get_style_defs('.highlight')}</style></head><body><main>",
    ]
    tail = ["<hr><p>Text: CC-BY-4.0. Code: Apache-2.0. The pmdkit authors.</p></main>"]
    if typeset:
        tail.append(f'<script src="katex/katex.min.js"></script><script>{TYPESET}</script>')
    return "\n".join([*filter(None, head), body, *tail, "</body></html>"]) + "\n"


def executed(lesson: Any) -> Any:
    """An executed copy; an exception in a cell stops the run."""
    from nbclient import NotebookClient

    notebook = copy.deepcopy(lesson)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(PICTURES))
    running = NotebookClient(notebook, timeout=600, kernel_name="python3")
    running.extra_arguments = ["--log-level=40"]  # errors only: the kernel warns of its local port at every start
    running.execute()
    del notebook.cells[0]
    return notebook
