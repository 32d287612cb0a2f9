"""What a wheel has in place of solutions: `python -m pmdkit_course.stored` writes it to
reference_cases.json.gz, in a checkout.

It holds inputs, right answers, and those of every known mistake: numbers, and no code.
"""

import ast
import gzip
import hashlib
import inspect
import json
from pathlib import Path
from typing import Any

from pmdkit_course.exercises import Exercise, exercise, ids
from pmdkit_course.reference_cases import SEED, reference_cases
from pmdkit_course.serialization import encode
from pmdkit_course.variants import slips

PACKAGE = Path(__file__).parent
OUT = PACKAGE.parent / "reference_cases.json.gz"


def sources() -> str:
    """A digest of the code that the numbers come from; docstrings count, comments and line breaks do not."""
    paths = [
        *sorted((PACKAGE / "exercises").glob("lesson_*.py")),
        PACKAGE / "exercises" / "thread.py",
        PACKAGE / "reference_cases.py",
        PACKAGE / "variants.py",
    ]
    trees = "".join(ast.dump(ast.parse(path.read_text("utf-8"))) for path in paths)
    return hashlib.sha256(f"{trees}{slips()}".encode()).hexdigest()


def entry(e: Exercise) -> dict[str, Any]:
    """An exercise as a wheel has it: numbers, and no code."""
    found, mistakes = reference_cases(e, SEED), []
    for mistake in found.mistakes:
        answers = [encode(mistake.answer(n)) for n in range(len(found.cases))]
        if None not in answers:  # else it explains nothing
            mistakes.append((mistake.kind, mistake.says, mistake.slip, mistake.arguments, answers))
    return {
        "name": e.name,
        "arguments": list(inspect.signature(e.solution).parameters),
        "hints": e.hints,
        "slips": list(e.slips),
        "limits": (e.tolerance, e.exact, e.zero, e.deadline),
        "cases": encode(found.cases),
        "wanted": encode(found.wanted),
        "mistakes": mistakes,
    }


if __name__ == "__main__":
    found = {"sources": sources(), "exercises": {which: entry(exercise(which)) for which in ids()}}
    OUT.write_bytes(gzip.compress(json.dumps(found).encode(), mtime=0))
