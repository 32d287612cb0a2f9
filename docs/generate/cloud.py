"""Lessons on Colab and Binder: links, and notebooks that begin with a cell that installs pmdkit.

All of it comes from one address (address.py). While that is empty, there are no links and no such notebooks.
`python -m generate.cloud`, in docs/, writes tutorials/cloud/ or removes it; a test fails if it is out of date.
"""

import re
import shutil
from pathlib import Path
from urllib.parse import quote

import jupytext
import nbformat
from generate.address import repository
from nbformat import NotebookNode

ROOT = Path(__file__).parents[2]
FOLDER = "tutorials/cloud"
EXTRAS = {"100": "", "103": "", "204": "[gym,llm]", "301": "[gym,llm]", "302": "[gym,llm]"}
"What a lesson needs beyond the base; all others need OTHERS."
OTHERS = "[gym,torch]"
COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)


def links(stem: str, address: str) -> str:
    """A sentence with both links for a lesson's page; "" without an address."""
    if not address:
        return ""
    repo = address.removeprefix("https://github.com/")
    path = f"{FOLDER}/{stem}.ipynb"
    colab = f"https://colab.research.google.com/github/{repo}/blob/main/{path}"
    binder = f"https://mybinder.org/v2/gh/{repo}/main?labpath={quote(path, safe='')}"
    return f"Without installing anything: [open it in Colab]({colab}) or [in Binder]({binder}). "


def cloud_notebook(source: Path, address: str) -> NotebookNode:
    """A lesson without outputs; its first cell of code installs pmdkit."""
    notebook = jupytext.read(source)
    extras = EXTRAS.get(source.stem[:3], OTHERS)
    install = (
        f'# On Colab and Binder: installs pmdkit, in a minute or two.\n%pip install -q "pmdkit{extras} @ git+{address}"'
    )
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = COMMENT.sub("", cell.source)
    notebook.cells.insert(1, nbformat.v4.new_code_cell(install))
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"  # random ids would change the file on every write
    return notebook


def cloud_files(root: Path) -> dict[str, str]:
    """What tutorials/cloud/ should hold, by name; nothing without an address."""
    address = repository(root)
    sources = sorted((root / "tutorials").glob("[0-9]*.py")) if address else []
    return {f"{source.stem}.ipynb": nbformat.writes(cloud_notebook(source, address)) + "\n" for source in sources}


def write_cloud(root: Path) -> int:
    """Write the folder, or remove it; returns the number of notebooks."""
    shutil.rmtree(root / FOLDER, ignore_errors=True)
    wanted = cloud_files(root)
    for name, text in wanted.items():
        (root / FOLDER).mkdir(exist_ok=True)
        (root / FOLDER / name).write_text(text, encoding="utf-8")
    return len(wanted)


if __name__ == "__main__":
    print(f"{FOLDER}: {write_cloud(ROOT)} notebooks")
