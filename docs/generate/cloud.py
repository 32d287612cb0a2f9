"""Lessons on Colab and Binder: links, and notebooks that begin with a cell that installs pmdkit.

All of it comes from one address, `Repository` under `[project.urls]` in pyproject.toml. While that is empty there are
no links and no such notebooks. `python docs/generate/cloud.py` writes tutorials/cloud/ or removes it; a test fails
while the folder differs from the address.
"""

import re
import shutil
import tomllib
from pathlib import Path
from urllib.parse import quote

import jupytext
import nbformat
from nbformat import NotebookNode

ROOT = Path(__file__).parents[2]
FOLDER = "tutorials/cloud"
HOST = re.compile(r"https://github\.com/([\w-]+/[\w.-]+)")
EXTRAS = {"100": "", "103": "", "204": "[gym,llm]", "301": "[gym,llm]", "302": "[gym,llm]"}
"What a lesson needs beyond the base; all others need OTHERS."
OTHERS = "[gym,torch]"
COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)


def repository(root: Path) -> str:
    """OWNER/NAME on GitHub, or "" while there is no address. Colab and Binder open nothing from elsewhere."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    address = project.get("urls", {}).get("Repository", "").rstrip("/").removesuffix(".git")
    found = HOST.fullmatch(address)
    if address and found is None:
        raise SystemExit(f"Repository in pyproject.toml is '{address}'; expected https://github.com/OWNER/NAME, or ''")
    return found[1] if found else ""


def links(stem: str, repo: str) -> str:
    """A sentence with both links for a lesson's page; "" without an address."""
    if not repo:
        return ""
    path = f"{FOLDER}/{stem}.ipynb"
    colab = f"https://colab.research.google.com/github/{repo}/blob/main/{path}"
    binder = f"https://mybinder.org/v2/gh/{repo}/main?labpath={quote(path, safe='')}"
    return f"Without installing anything: [open it in Colab]({colab}) or [in Binder]({binder}). "


def cloud_notebook(source: Path, repo: str) -> NotebookNode:
    """A lesson without outputs; its first cell of code installs pmdkit."""
    notebook = jupytext.read(source)
    extras = EXTRAS.get(source.stem[:3], OTHERS)
    install = (
        "# On Colab and Binder: installs pmdkit, in a minute or two.\n"
        f'%pip install -q "pmdkit{extras} @ git+https://github.com/{repo}"'
    )
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = COMMENT.sub("", cell.source)
    notebook.cells.insert(1, nbformat.v4.new_code_cell(install))
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"  # random ids would make every writing another file
    return notebook


def cloud_files(root: Path) -> dict[str, str]:
    """What tutorials/cloud/ should hold, by name; nothing without an address."""
    repo = repository(root)
    sources = sorted((root / "tutorials").glob("[0-9]*.py")) if repo else []
    return {f"{source.stem}.ipynb": nbformat.writes(cloud_notebook(source, repo)) + "\n" for source in sources}


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
