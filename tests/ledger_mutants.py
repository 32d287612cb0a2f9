"""Breaks the code that each row of the ledger names, and runs the row's own tests: `make ledger-mutants`.

A mutant is one small slip: a sign, a factor, off by one, a dropped term, a turned comparison. A row whose tests pass
with broken code proves nothing. They are the test of its claim, and the oracle of its code, which holds that to its
formula. Survivors that change nothing are listed in ledger_survivors.toml with the proof.

Runs in a copy of the checkout, one process at a time, and goes on where it was stopped.
"""

import argparse
import ast
import compileall
import contextlib
import functools
import hashlib
import itertools
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import NoReturn

import hypothesis
import hypothesis.strategies  # what the tests import is loaded once, for all of them
import mpmath  # noqa: F401
import numpy as np  # noqa: F401
import pytest
import scipy.special  # noqa: F401
import torch  # noqa: F401

ROOT = Path(__file__).parents[1]
SURVIVORS = Path(__file__).with_name("ledger_survivors.toml")
FEWEST = 5  # mutants of a row
WANTED = 0.95  # share of the rows that kill all of theirs
PATIENCE = 600  # seconds of processor time a test may take with broken code; an endless loop counts as noticed
WALL = 6 * PATIENCE  # seconds in all: a machine may be busy, and a test may wait for what never comes
COPIED = ("pmdkit", "tests", "docs", "envs", "llm", "benchmarks", "tutorials", "pyproject.toml")
KINDS = ("sign", "factor", "dropped term", "off by one", "comparison", "function", "swap", "guard")  # the first first
DEFINITION = (ast.FunctionDef, ast.ClassDef)
SIGNS = {ast.Add: "-", ast.Sub: "+"}
SYMBOLS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
TURNED = {ast.Lt: ">=", ast.LtE: ">", ast.Gt: "<=", ast.GtE: "<", ast.Eq: "!=", ast.NotEq: "=="}
OPPOSITE = {"minimum": "maximum", "maximum": "minimum", "min": "max", "max": "min", "amin": "amax", "amax": "amin"}
OPPOSITE |= {"clamp_min": "clamp_max", "clamp_max": "clamp_min", "argmin": "argmax", "argmax": "argmin"}
SYMMETRIC = {
    *OPPOSITE,
    "logaddexp",
    "together",
    "allclose",
    "isclose",
    "zip",
    "broadcast_arrays",
}  # swapped they are as before
OPPOSITE |= {"exp": "expm1", "expm1": "exp", "log": "log1p", "log1p": "log", "sum": "mean", "mean": "sum"}


@dataclass(frozen=True)
class Mutant:
    """One slip.

    Attributes:
        file: of the checkout, with the slip in it.
        line: where.
        kind: one of KINDS. A guard refuses bad input; it is broken only where there is little else.
        before, after: the piece of source.
        source: of the whole file, broken.
    """

    file: str
    line: int
    kind: str
    before: str
    after: str
    source: str

    @property
    def text(self) -> str:
        """The same for the same slip, wherever its line moves."""
        return f"{self.file}: {self.kind}: {self.before} -> {self.after}"


def slips(node: ast.AST, source: str) -> Iterator[tuple[str, str]]:
    """Kind and new text of every slip that one expression invites."""

    def text(part: ast.AST) -> str:
        start, end = span(part, source)
        return source.encode()[start:end].decode()

    if isinstance(node, ast.BinOp) and type(node.op) in SYMBOLS:
        left, right = text(node.left), text(node.right)
        if type(node.op) in SIGNS:
            yield "sign", f"({left} {SIGNS[type(node.op)]} ({right}))"
            yield "dropped term", f"({left})"
            yield "dropped term", f"({right})"
        else:
            yield "factor", f"(({left}) {'/' if isinstance(node.op, ast.Mult) else '*'} ({right}))"
            yield "sign", f"(-({text(node)}))"
            yield "dropped term", f"({left})"
            yield "dropped term", f"({right})"
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        yield "factor", f"({text(node.left)})"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and not isinstance(node.operand, ast.Constant):
        yield "sign", f"({text(node.operand)})"
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield "off by one", str(node.value + 1)
    elif isinstance(node, ast.Constant) and type(node.value) is float:
        yield "factor", repr(node.value * 2 or 1.0)
    elif isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in TURNED:
        yield "comparison", f"({text(node.left)} {TURNED[type(node.ops[0])]} {text(node.comparators[0])})"
    elif isinstance(node, ast.Call):
        called = node.func
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        if name in OPPOSITE:
            yield (
                "function",
                text(node)[: len(text(called)) - len(name)] + OPPOSITE[name] + text(node)[len(text(called)) :],
            )
        if (
            name not in SYMMETRIC
            and len(node.args) > 1
            and not any(isinstance(each, ast.Starred) for each in node.args[:2])
        ):
            first, second = text(node.args[0]), text(node.args[1])
            start, end = span(node, source)
            a, b = span(node.args[0], source), span(node.args[1], source)
            whole = source.encode()
            pieces = whole[start : a[0]], second.encode(), whole[a[1] : b[0]], first.encode(), whole[b[1] : end]
            yield "swap", b"".join(pieces).decode()


def span(node: ast.AST, source: str) -> tuple[int, int]:
    """Where an expression begins and ends, in bytes of the source."""
    starts = line_starts(source)
    assert isinstance(node, ast.expr)
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset


@functools.lru_cache(maxsize=4)
def line_starts(source: str) -> list[int]:
    """The byte at which each line of a source begins."""
    return [0, *itertools.accumulate(len(line) for line in source.encode().splitlines(keepends=True))]


def expressions(node: ast.AST) -> Iterator[ast.AST]:
    """Expressions that compute: no default of an option, check of one, annotation, decorator, error or text."""
    if isinstance(node, (ast.Raise, ast.Assert, ast.JoinedStr)) or getattr(node, "name", "") == "__post_init__":
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "bases", "defaults", "kw_defaults"):
            continue
        for child in value if isinstance(value, list) else [value]:
            option = isinstance(node, ast.ClassDef) and isinstance(child, (ast.Assign, ast.AnnAssign))
            if isinstance(child, ast.AST) and not option:
                yield from expressions(child)


def definitions(tree: ast.Module, name: str) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    """What a row names, then what it uses of its own file: by those the name alone may only pass its arguments on."""
    known: dict[str, ast.FunctionDef | ast.ClassDef] = {}
    for each in ast.walk(tree):  # those of the file before the methods of its classes
        if isinstance(each, DEFINITION):
            known.setdefault(each.name, each)
    if name not in known:
        raise SystemExit(
            f"no function or class {name}; the ledger names one: mend packages/pmdkit-lab/pmdkit_lab/ledger"
        )
    seen, waiting = [name], [name]
    while waiting:
        node = known[waiting.pop(0)]
        yield node
        inner = {each.name for each in ast.walk(node) if isinstance(each, DEFINITION)}
        for used in ast.walk(node):
            if isinstance(used, ast.Name) and used.id in known and used.id not in (*seen, *inner):
                seen.append(used.id)
                waiting.append(used.id)


def mutants(file: str, name: str, count: int = FEWEST, root: Path = ROOT) -> list[Mutant]:
    """`count` slips in the code a row names, of as many kinds as there are, evenly over its lines.

    Where the named code has fewer, those of the functions it uses in the same file follow.
    """
    source = (root / file).read_text(encoding="utf-8")
    chosen: list[Mutant] = []
    for node in definitions(ast.parse(source), name):
        chosen += itertools.islice(spread(broken(node, source)), count - len(chosen))
        if len(chosen) >= count:
            break
    return [replace(mutant, file=file) for mutant in chosen]


def broken(node: ast.AST, source: str) -> list[Mutant]:
    """Every slip of a definition that is not what it was."""
    data, found, seen = source.encode(), [], set()
    guards = [span(each.test, source) for each in ast.walk(node) if isinstance(each, ast.If) and refuses(each)]
    for each in expressions(node):
        for kind, after in slips(each, source):
            start, end = span(each, source)
            before = data[start:end].decode()
            meaning = parsed(after)
            if meaning != parsed(before) and (start, end, meaning) not in seen:
                seen.add((start, end, meaning))
                text = (data[:start] + after.encode() + data[end:]).decode()
                kind = "guard" if any(first <= start < last for first, last in guards) else kind
                found.append(Mutant("", data.count(b"\n", 0, start) + 1, kind, before, after, text))
    return found


def refuses(node: ast.If) -> bool:
    """Whether a condition only refuses bad input."""
    return all(isinstance(each, ast.Raise) for each in node.body) and not node.orelse


def parsed(expression: str) -> str:
    """What an expression means, whatever its brackets and spaces."""
    return ast.dump(ast.parse(f"({expression})", mode="eval"))


def spread(found: list[Mutant]) -> Iterator[Mutant]:
    """All of them in an order that is mixed from the start: the kinds in turn, in each the places far apart."""
    kinds: dict[str, list[Mutant]] = {}
    for each in found:
        kinds.setdefault(each.kind, []).append(each)
    guards = kinds.pop("guard", [])
    ordered = [[kinds[kind][place] for place in halving(len(kinds[kind]))] for kind in KINDS if kind in kinds]
    for turn in itertools.zip_longest(*ordered):
        yield from (each for each in turn if each is not None)
    yield from guards


def halving(count: int) -> list[int]:
    """0 to count - 1, ends first, then the middle of the largest gap, and so on."""
    order = [0, count - 1][: min(count, 2)]
    while len(order) < count:
        known = sorted(order)
        left, right = max(itertools.pairwise(known), key=lambda gap: gap[1] - gap[0])
        order.append((left + right) // 2)
    return order


# Running them.


def copy_of(checkout: Path, place: Path) -> None:
    """What the tests need, apart from the checkout: nobody else sees broken code."""
    for name in COPIED:
        if (checkout / name).is_dir():
            shutil.copytree(checkout / name, place / name, ignore=shutil.ignore_patterns("__pycache__", ".*"))
        elif (checkout / name).exists():
            shutil.copy(checkout / name, place / name)
    # by its content: broken code is compiled anew however soon it was written
    compileall.compile_dir(place / "pmdkit", quiet=1, invalidation_mode=PycInvalidationMode.CHECKED_HASH)


def run_tests(place: Path, tests: Sequence[str]) -> str:
    """What the tests said, up to the first that failed: "passed", "failed", "late", or "error" if not collected.

    In a fork of this process, which has the libraries loaded: to import them takes longer than most of the tests.
    """
    child = os.fork()
    if child == 0:
        in_the_child(place, tests)
    begun = time.monotonic()
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() - begun > WALL:
            break
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):  # what the test started ends with it
        os.killpg(child, signal.SIGKILL)
    if ended[0] == 0:
        os.waitpid(child, 0)
        return "late"
    return {0: "passed", 1: "failed", -signal.SIGXCPU: "late"}.get(os.waitstatus_to_exitcode(ended[1]), "error")


def in_the_child(place: Path, tests: Sequence[str]) -> NoReturn:
    """Run the tests on the copy and leave; time that it waits for the processor does not count."""
    code = 3
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (PATIENCE, PATIENCE + 10))
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        os.chdir(place)
        # no test here needs a plugin, and to load them takes seconds
        os.environ |= {"PYTHONPATH": str(place), "OMP_NUM_THREADS": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        hypothesis.settings.register_profile("pmdkit", deadline=None)  # as tests/conftest.py does with the plugin
        hypothesis.settings.load_profile("pmdkit")
        sys.path.insert(0, str(place))
        for name in [each for each in sys.modules if each.partition(".")[0] in ("pmdkit", "tests")]:
            del sys.modules[name]  # those of the checkout
        code = int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", *tests]))
    finally:
        os._exit(code)


def try_row(claim: dict[str, str], place: Path, done: dict[str, str], journal: Path) -> list[tuple[Mutant, str]]:
    """Mutants of a row with what its tests said; those in the journal are not run again."""
    file, name = claim["code"].split(":")
    tests = [each for each in (claim["oracle"], claim["test"]) if each]  # that of the code first: it is the faster one
    found = []
    for mutant in mutants(file, name):
        key = fingerprint(mutant.source, tests)
        if key not in done:
            unbroken = fingerprint((ROOT / file).read_text(encoding="utf-8"), tests)
            if unbroken not in done:
                note(journal, done, unbroken, run_tests(place, tests))
            if done[unbroken] != "passed":
                raise SystemExit(
                    f"{' or '.join(tests)} does not pass with the code as it is; nothing can be said of {claim['id']}"
                )
            (place / file).write_text(mutant.source, encoding="utf-8")
            try:
                said = run_tests(place, tests)
            finally:
                shutil.copy(ROOT / file, place / file)
            note(journal, done, key, said)
        found.append((mutant, done[key]))
    return found


def fingerprint(source: str, tests: Sequence[str]) -> str:
    """Of one run: the broken source, the tests and the files that they stand in."""
    contents = [(ROOT / test.split("::")[0]).read_bytes() for test in tests]
    return hashlib.sha256(b"\0".join([source.encode(), *(test.encode() for test in tests), *contents])).hexdigest()


def note(journal: Path, done: dict[str, str], key: str, said: str) -> None:
    """Write a finished run down at once."""
    done[key] = said
    with open(journal, "a", encoding="utf-8") as file:
        file.write(json.dumps([key, said]) + "\n")


def read_journal(path: Path) -> dict[str, str]:
    """Finished runs; a last line that was cut off is left out."""
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    return dict(json.loads(line) for line in lines)


def proved() -> dict[tuple[str, str], str]:
    """(row, mutant) -> why the mutant changes nothing."""
    listed = tomllib.loads(SURVIVORS.read_text(encoding="utf-8")).get("survivor", [])
    return {(each["claim"], each["mutant"]): each["because"] for each in listed}


def report(rows: Sequence[tuple[dict[str, str], list[tuple[Mutant, str]]]]) -> tuple[str, bool]:
    """The score in words, every survivor, and whether it is good enough."""
    known, text, whole, bad, few = proved(), "", 0, 0, 0
    for claim, tried in rows:
        alive = [mutant for mutant, said in tried if said == "passed"]
        open_ones = [mutant for mutant in alive if (claim["id"], mutant.text) not in known]
        few += len(tried) < FEWEST
        whole += not open_ones
        bad += len(open_ones)
        for mutant in alive:
            because = known.get((claim["id"], mutant.text), "SURVIVES")
            text += f"{claim['id']}: {mutant.text} (line {mutant.line}): {because}\n"
        if len(tried) < FEWEST:
            text += f"{claim['id']}: only {len(tried)} mutants in {claim['code']}\n"
    text += (
        f"{whole} of {len(rows)} rows kill all of theirs, {bad} mutants survive without a proof, {few} rows have few\n"
    )
    return text, whole >= WANTED * len(rows) and not bad and not few


def main() -> int:
    """Try the rows, all or those named."""
    sys.path.insert(0, str(ROOT))
    from pmdkit_lab.ledger import claims

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="folder of the journal and the report")
    parser.add_argument("rows", nargs="*", help="ids of the ledger; all of them by default")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    journal = chosen.out / "runs.jsonl"
    done = read_journal(journal)
    unknown = set(chosen.rows) - {claim["id"] for claim in claims()}
    if unknown:
        raise SystemExit(f"the ledger has no row {', '.join(sorted(unknown))}; pmdkit ledger lists them")
    rows = [claim for claim in claims() if not chosen.rows or claim["id"] in chosen.rows]
    tried = []
    with tempfile.TemporaryDirectory() as folder:
        copy_of(ROOT, Path(folder))
        for count, claim in enumerate(rows, 1):
            tried.append((claim, try_row(claim, Path(folder), done, journal)))
            print(f"{count} of {len(rows)}: {claim['id']}: {' '.join(said for _, said in tried[-1][1])}", flush=True)
    text, good = report(tried)
    (chosen.out / "report.txt").write_text(text, encoding="utf-8")
    print(text, end="")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
