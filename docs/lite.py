"""`sh tools/lite.sh`: lessons 100 to 106 as a JupyterLite site, where Python itself runs in the browser.

`python docs/lite.py JUPYTER FOLDER` writes the notebooks and the wheel, lets `jupyter lite build` make the site, and
checks it. A cell that needs torch becomes a text with its stored output, since a browser has no torch. The check covers
only what works without a network: the browser fetches Pyodide and its packages from a CDN, which no test has run.
"""

import base64
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import jupytext
import nbformat
from generate.lessons import digest, run, split_alt
from nbformat import NotebookNode

ROOT = Path(__file__).parents[1]
LESSONS = range(100, 107)
PACKAGES = ("numpy", "scipy", "matplotlib", "rich", "pydantic", "cyclopts", "filelock", "pillow")
"The dependencies of pmdkit that these lessons import; safetensors is only for runs."
INSTALL = f"""# Run this first. It installs pmdkit in your browser; the first time takes a minute or two.
import piplite

await piplite.install({list(PACKAGES)!r})
for name in ("pmdkit", "strict-answers", "pmdkit-lab", "pmdkit-course"):  # wheels beside this page
    await piplite.install(name, deps=False)"""
STORED = "**This cell needs torch, which a browser does not have. Here it is with the output of an earlier run.**"
COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)


def lite_notebook(executed: NotebookNode) -> NotebookNode:
    """A lesson for the browser, from the executed one: an install cell, and torch cells as text with their outputs."""
    cells = [nbformat.v4.new_code_cell(INSTALL)]
    for cell in executed.cells:
        if cell.cell_type == "markdown":
            cells.append(nbformat.v4.new_markdown_cell(COMMENT.sub("", cell.source)))
        elif "torch" in cell.metadata.get("tags", []):
            cells.append(stored(cell))
        else:
            cells.append(nbformat.v4.new_code_cell(cell.source))
    head = {"kernelspec": {"name": "python", "display_name": "Python (Pyodide)", "language": "python"}}
    return nbformat.v4.new_notebook(cells=[*cells[1:2], cells[0], *cells[2:]], metadata=head)


def stored(cell: NotebookNode) -> NotebookNode:
    """A code cell as Markdown: its source, what it printed, and its pictures as attachments."""
    alt, code = split_alt(cell.source)
    blocks, attachments = [STORED, f"```python\n{code}\n```"], {}
    for number, output in enumerate(cell.outputs):
        picture = output.get("data", {}).get("image/svg+xml")
        if picture is not None:
            name = f"picture-{number}.svg"
            attachments[name] = {"image/svg+xml": base64.b64encode(picture.encode()).decode()}
            blocks.append(f"![{alt}](attachment:{name})")
        else:
            text = output.text if output.output_type == "stream" else output.data["text/plain"]
            blocks.append(f"```text\n{text.rstrip()}\n```")
    return nbformat.v4.new_markdown_cell("\n\n".join(blocks), attachments=attachments)


def write_notebooks(folder: Path) -> list[str]:
    """Write the lessons as notebooks for the browser; each is executed first unless it is in the cache."""
    cache = ROOT / "docs" / ".cache"
    cache.mkdir(exist_ok=True)
    names = []
    for number in LESSONS:
        (source,) = (ROOT / "tutorials").glob(f"{number}_*.py")
        executed = cache / f"{source.stem}-{digest(source, ROOT / 'pmdkit')}.ipynb"
        print(run(source, executed, ROOT / "tutorials"))
        nbformat.write(lite_notebook(nbformat.read(executed, as_version=4)), folder / f"{source.stem}.ipynb")
        names.append(f"{source.stem}.ipynb")
    return names


def problems(site: Path, notebooks: Sequence[str], wheels: Sequence[str]) -> list[str]:
    """What is wrong with a built site, one line each."""
    found = [f"{name} is missing" for name in ("index.html", "lab/index.html") if not (site / name).is_file()]
    index = site / "api" / "contents" / "all.json"
    listed = {entry["path"] for entry in json.loads(index.read_text())["content"]} if index.is_file() else set()
    for name in notebooks:
        if name not in listed or not (site / "files" / name).is_file():
            found.append(f"{name} is not among the files of the site")
            continue
        cells = jupytext.read(site / "files" / name).cells
        code = [cell.source for cell in cells if cell.cell_type == "code"]
        if code[0] != INSTALL:
            found.append(f"{name} does not begin with the cell that installs pmdkit")
        found += [
            f"{name}: a cell imports torch" for source in code if re.search(r"^(import|from) torch", source, re.M)
        ]
    packages = json.loads((site / "pypi" / "all.json").read_text()) if (site / "pypi" / "all.json").is_file() else {}
    releases = [each for package in packages.values() for each in package.get("releases", {}).values()]
    offered = {entry["filename"] for each in releases for entry in each}
    return found + [f"the site does not offer {wheel}" for wheel in wheels if wheel not in offered]


def main(jupyter: str, site: Path) -> list[str]:
    """Rebuild the site; returns what is wrong with it."""
    work = ROOT / "build" / "lite"
    shutil.rmtree(work, ignore_errors=True)
    shutil.rmtree(site, ignore_errors=True)
    (work / "contents").mkdir(parents=True)
    notebooks = write_notebooks(work / "contents")
    for source in (ROOT, *sorted((ROOT / "packages").iterdir())):
        build = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", work, source]
        subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    wheels = sorted(work.glob("*.whl"))
    # in its own folder, since jupyter lite keeps a database of its builds in the current one
    command = [
        jupyter,
        "lite",
        "build",
        "--contents",
        work / "contents",
        "--output-dir",
        site,
        *(part for wheel in wheels for part in ("--piplite-wheels", wheel)),
    ]
    subprocess.run([str(part) for part in command], cwd=work, check=True, stdout=subprocess.DEVNULL)
    found = problems(site, notebooks, [wheel.name for wheel in wheels])
    if not found:
        print(
            f"{site}: {len(notebooks)} lessons and {len(wheels)} wheels; serve it with python -m http.server -d {site}"
        )
    return found


if __name__ == "__main__":
    sys.exit("\n".join(main(str(Path(sys.argv[1]).absolute()), Path(sys.argv[2]).absolute())) or 0)
