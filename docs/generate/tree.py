"""The tree of the package, one line per file, in README.md and docs/design.md: the first sentence of every docstring.

`python docs/generate/tree.py` rewrites both; a test fails if they differ from the sources.
"""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/design.md")
BEGIN, END = "<!-- tree: python docs/generate/tree.py -->\n", "<!-- end of the tree -->"
WIDTH = 132


def tree() -> str:
    """The files of pmdkit with what their first line says, folder by folder; files before folders."""
    lines: list[str] = []

    def walk(folder: Path, indent: str) -> None:
        files = sorted(folder.glob("*.py"), key=lambda path: path.name)
        files = [path for path in files if path.name not in ("__init__.py", "__main__.py", "version.py")]
        room = max((len(path.name) for path in files), default=0) + 2
        for path in files:
            lines.append(fitted(f"{indent}{path.name:<{room}}{first_line(path)}"))
        for inner in sorted(path for path in folder.iterdir() if (path / "__init__.py").exists()):
            lines.append(fitted(f"{indent}{inner.name}/  {first_line(inner / '__init__.py')}"))
            walk(inner, indent + "    ")

    walk(ROOT / "pmdkit", "  ")
    return "```text\npmdkit/\n" + "\n".join(lines) + "\n```\n"


def first_line(path: Path) -> str:
    """The first line of a module's docstring, without its full stop."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split()).split(". ")[0].rstrip(".")


def fitted(line: str) -> str:
    """The line, cut at a word where it is too wide."""
    return line if len(line) <= WIDTH else line[: WIDTH - 4].rsplit(" ", 1)[0].rstrip(",:;") + " ..."


def with_tree(page: str) -> str:
    """The text of a page with the current tree between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise SystemExit(f"a page has no {BEGIN.strip()} ... {END}; add them where the tree belongs")
    return before + BEGIN + tree() + END + after


if __name__ == "__main__":
    for name in PAGES:
        (ROOT / name).write_text(with_tree((ROOT / name).read_text(encoding="utf-8")), encoding="utf-8")
