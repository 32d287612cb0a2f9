"""A user's own reward functions: found and imported as pmdkit does with code of others, called by `strict_answers`."""

import ast
from pathlib import Path
from typing import Any

from pmdkit import plugins
from pmdkit.errors import ComponentDied, UsageError
from strict_answers import FunctionGrader
from strict_answers.function_grader import OwnReward, is_pair
from strict_answers.process import CannotLoad, WorkerFailed


def make_function_grader(grade: str, **options: Any) -> FunctionGrader:
    """The grader of a function such as my.py:grade, whose errors have exit codes; options as for `FunctionGrader`."""
    path, identity = identify(grade)
    try:
        return FunctionGrader(path, identity=identity, loader=f"{__name__}:load", **options)
    except CannotLoad as error:
        raise UsageError(f"the grader {grade} cannot be used: {error}") from error
    except WorkerFailed as error:
        raise ComponentDied(f"the grader {grade} was not ready: {error}; run again, with --resume") from error


def load(grade: str, seconds: float) -> OwnReward:
    """In a worker: the function that `my.py:grade` names."""
    return OwnReward(plugins.function_from_path(grade, "(response: str, gold: str) -> float"), seconds)


def identify(grade: str) -> tuple[str, str]:
    """The function's name for a worker, and the identity of the judge, which changes with the file and its contents."""
    file, _, name = grade.rpartition(":")
    path = Path(file).resolve()
    if not file or not name.isidentifier():
        raise UsageError(f"'{grade}' names no grader; expected \"math\", or a file and a function such as my.py:grade")
    if not path.is_file():
        raise UsageError(f"{file} is not a file; expected a Python file such as my.py, relative to {Path.cwd()}")
    return f"{path}:{name}", f"own {name} {plugins.sha256_of_code(path)}"


def takes_gold(grade: str) -> bool:
    """Whether a reward needs a gold answer; that of a user's file by its parameters, without running the file.

    One that its file makes otherwise than with `def` counts as one that does.
    """
    file, _, name = grade.rpartition(":")
    if not file:
        return grade == "math"
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):  # a worker reports the error
        return True
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            given, positional = node.args, [*node.args.posonlyargs, *node.args.args]
            needed = {one.arg for one in positional[: len(positional) - len(given.defaults)]}
            needed |= {one.arg for one, value in zip(given.kwonlyargs, given.kw_defaults, strict=True) if value is None}
            by_name = isinstance(node, ast.AsyncFunctionDef) or bool(given.kwonlyargs) or given.kwarg is not None
            return "gold" in needed or is_pair([one.arg for one in (*positional, *given.kwonlyargs)], by_name)
    return True
