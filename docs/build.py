"""Writes the generated pages of the site: executed lessons, the paper index, the ledger. `mkdocs build` comes after.

All that is written here is ignored by git: docs/learn/lessons, docs/paper/ledger.md, docs/paper_index.md, docs/.cache.
"""

import inspect
import time
from pathlib import Path

from generate.ledger import write_ledger
from generate.lessons import write_lessons
from generate.paper_index import write_paper_index

from pmdkit import ledger, theory
from pmdkit.objectives import OBJECTIVES

DOCS = Path(__file__).parent
ROOT = DOCS.parent


def main() -> None:
    """Write all generated pages."""
    start = time.perf_counter()
    for line in write_lessons(ROOT / "tutorials", DOCS / "learn" / "lessons", DOCS / ".cache", ROOT / "pmdkit"):
        print(line)
    functions = [item for name in theory.__all__ if inspect.isfunction(item := getattr(theory, name))]
    print(f"paper index: {write_paper_index(DOCS / 'paper_index.md', OBJECTIVES, functions)} rows")
    print(f"ledger: {write_ledger(DOCS / 'paper' / 'ledger.md', ledger.claims())} claims")
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
