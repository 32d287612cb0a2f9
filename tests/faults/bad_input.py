"""Input that nobody wants: slips in the names of keys, configurations, and rows and files of a data set.

A configuration and a mutated file are functions of their number alone, so a failing one is found again by it. Rows and
files stand with the reason that is given for refusing them.
"""

import gzip
import io
import json
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from random import Random

import pyarrow
from pyarrow import parquet

from pmdkit.cli import main
from pmdkit.envs.kinds import KINDS as BANDITS
from pmdkit.envs.math.datasets import MATH_KINDS
from pmdkit.envs.tokens.tasks import KINDS as TOKENS
from pmdkit.objectives import OBJECTIVES
from pmdkit.specs import SPECS, find

LETTERS = "abcdefghijklmnopqrstuvwxyz_"
KEYBOARD = LETTERS + "0123456789-."


def slips(name: str, letters: int = 1) -> Iterator[str]:
    """Names that one slip makes of this one, each once: a letter too few, swapped, too many or another; case; dashes.

    Args:
        name: of a key, a table or an option.
        letters: how many letters are tried at each place where there is one too many or another.
    """
    rng = Random(name)
    places = range(len(name))
    made = [name[:i] + name[i + 1 :] for i in places]
    made += [name[:i] + name[i + 1] + name[i] + name[i + 2 :] for i in places[:-1]]
    for i in range(len(name) + 1):
        for letter in rng.sample(LETTERS, min(letters, len(LETTERS))):
            made += [name[:i] + letter + name[i:], name[:i] + letter + name[i + 1 :]]
    made += [name.upper(), name.capitalize(), name.swapcase(), name + "s", name[0] + name]
    made += [name.replace("_", "-"), name.replace("_", ""), name.replace("-", "_"), name.replace("-", "")]
    yield from dict.fromkeys(slip for slip in made if slip not in (name, ""))


@cache
def all_slips(name: str) -> frozenset[str]:
    """Every name that one slip makes of this one: what a hint may stand for."""
    cut = [(name[:i], name[i:]) for i in range(len(name) + 1)]
    edits = {a + b[1:] for a, b in cut if b} | {a + b[1] + b[0] + b[2:] for a, b in cut if len(b) > 1}
    edits |= {a + c + b for a, b in cut for c in KEYBOARD} | {a + c + b[1:] for a, b in cut if b for c in KEYBOARD}
    return frozenset(edits | set(slips(name)))


# Configurations: specs of the shelf with values, keys and tables replaced, as files and as options.

BASES = {
    "bandit": ("needle", "pass-rates", "two-hills", "shared-features", "graded", "noisy-verifier"),
    "toy": ("copy", "modular-sum", "addition", "countdown", "maze"),
    "llm": ("qwen2.5-7b", "one-gpu", "qwen3-30b-a3b"),
}
KINDS = {"bandit": BANDITS, "toy": TOKENS, "llm": MATH_KINDS}
VALUES = (Path(__file__).parent / "hostile_values.txt").read_text(encoding="utf-8").splitlines()
VALUES += ['"' + "x" * 20_000 + '"', "9" * 5_000, "0x" + "f" * 5_000, "[" * 3_000, "", "#"]
KEYS = ["self", "cls", "__class__", "__init__", '""', '"a b"', "a.b", '"é"', "kind", "name", "rule", "tier", "env", "1"]
LINES = (
    "[env]",
    "[[env]]",
    "[env.kind]",
    "[schedul]",
    "[Run]",
    "[]",
    "[.]",
    "[run",
    "env = 3",
    "objective = []",
    "x = 1",
)


@dataclass(frozen=True)
class Outcome:
    """What a command came to: exit code, what it printed, how long it took."""

    code: int
    out: str
    err: str
    seconds: float


def run(*arguments: str) -> Outcome:
    """Call the command line in this process."""
    out, err = io.StringIO(), io.StringIO()
    begun = time.monotonic()
    code = 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main(list(arguments))
        except SystemExit as leave:
            code = int(leave.code or 0)
    return Outcome(code, out.getvalue(), err.getvalue(), time.monotonic() - begun)


def known_keys(tier: str, kind: str, objective: str) -> list[str]:
    """Every dotted key that a spec of that tier may have."""
    options = {"env": ["kind", *(f.name for f in fields(KINDS[tier][kind]))]}
    options["objective"] = ["name", *(f.name for f in fields(OBJECTIVES[objective]))]
    return [
        f"{section}.{key}"
        for section, table in SPECS[tier].known_tables().items()
        for key in (options[section] if table is None else table.model_fields)
    ]


def command(number: int, folder: Path, tier: str) -> list[str]:
    """The arguments of a hostile dry run; its spec is written to the folder."""
    rng = Random(f"{tier} {number}")
    tables = find.read(find.spec_file(rng.choice(BASES[tier]), tier))
    objective = rng.choice(list(OBJECTIVES)) if rng.random() < 0.3 else tables["objective"]["name"]
    keys = known_keys(tier, tables["env"]["kind"], objective)
    if objective != tables["objective"]["name"]:
        tables["objective"] = {"name": objective}
    raw = {section: {key: literal(value) for key, value in table.items()} for section, table in tables.items()}
    pairs = []
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        section, _, key = rng.choice(keys).partition(".")
        if rng.random() < 0.08:
            key = rng.choice(KEYS)
        value = rng.choice(VALUES)
        if rng.random() < 0.6:
            raw.setdefault(section, {})[key] = value
        else:
            pairs.append(f"{section}.{key}={value}")
    if rng.random() < 0.05:
        section = rng.choice(list(raw))
        raw[section].pop(rng.choice(list(raw[section])))
    if rng.random() < 0.03:
        del raw[rng.choice(list(raw))]
    tables_of = [[f"[{section}]", *(f"{k} = {v}" for k, v in table.items())] for section, table in raw.items()]
    lines = [line for table in tables_of for line in table]
    if rng.random() < 0.05:
        lines.insert(rng.randrange(len(lines) + 1), rng.choice([*LINES, rng.choice(lines)]))
    data = "\n".join(lines).encode("utf-8", "surrogatepass")
    if rng.random() < 0.03:
        place = rng.randrange(len(data))
        data = data[:place] + bytes([rng.randrange(256)]) + data[place + rng.randrange(2) :]
    (folder / "hostile.toml").write_bytes(data)
    options = ["--json"] * (tier == "llm") + ["--set", *pairs] * bool(pairs)
    return [tier, "hostile.toml", "--dry-run", *options]


def literal(value: object) -> str:
    """A value of a spec as TOML writes it; what specs hold are the values of JSON, and tables within them."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {literal(part)}" for key, part in value.items()) + "}"
    return json.dumps(value)


# Rows and files of a data set.

GOOD = [{"id": f"p{n}", "problem": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(1, 6)]


def line(**changes: object) -> bytes:
    """The last good row with changes; `gone` takes a key out."""
    row = {"id": "bad", "problem": "What is 7 + 7?", "answer": "14"} | changes
    return json.dumps({key: value for key, value in row.items() if value != "gone"}).encode()


ROWS = {
    "no answer": (line(answer="gone"), "the answer is missing"),
    "no problem": (line(problem="gone"), "the problem is missing"),
    "empty problem": (line(problem=" \t"), "the problem is empty"),
    "empty answer": (line(answer=""), "the answer is empty"),
    "a number for the problem": (line(problem=3), "the problem is a int"),
    "a list for the answer": (line(answer=["14"]), "the answer is a list"),
    "true for the answer": (line(answer=True), "the answer is true or false"),
    "NaN": (line(answer=float("nan")), "the answer is not a finite number"),
    "infinity": (line(answer="gone")[:-1] + b', "answer": 1e999}', "the answer is not a finite number"),
    "not UTF-8": (line(problem="x").replace(b'"x"', b'"\xff"'), "not UTF-8 at byte"),
    "NUL": (line(problem="a\0b"), "holds a NUL"),
    "half a surrogate pair": (line(problem="a\ud83d"), "half a surrogate pair"),
    "a BOM within the file": (b"\xef\xbb\xbf" + line(), "the line is not JSON"),
    "a torn line": (line()[:-9], "the line is not JSON"),
    "the same id, other content": (line(id="p1"), "id 'p1' is also in row 1"),
    "the same key twice": (b'{"problem": "a", "problem": "b", "answer": "1"}', "the key 'problem' twice"),
    "an object for the problem": (line(problem={"text": {"en": "x"}}), "the problem is a dict"),
    "another schema": (b'{"question": "Why?", "solution": "#### 3"}', "the problem is missing"),
    "a huge field": (line(problem="x" * 100_001), "longer than 100000 characters"),
    "fifty megabytes": (line(problem="x" * 50_000_000), "the line is longer than 10,000,000 bytes"),
    "nested without end": (b"[" * 200_000, "the line is not JSON"),
    "an open box": (line(answer="so \\boxed{\\frac{1}{2}"), "the braces of the last"),
    "two JSON values": (line() + line(id="c"), "the line is not JSON"),
    "a list": (b"[1, 2]", "the line is a list"),
    "a control character in the id": (line(id="a\x1b[31m"), "the id holds a control character"),
    "Python, not JSON": (b"{'problem': 'x', 'answer': '1'}", "the line is not JSON"),
}


def table(rows: list[dict[str, str]]) -> bytes:
    """A Parquet file."""
    file = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    return file.getvalue()


JSONL = b"".join(json.dumps(row).encode() + b"\n" for row in GOOD)
PARQUET = table([{"id": str(n), "problem": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(3000)])
FILES = {
    "empty.jsonl": (b"", "is empty"),
    "blank.jsonl": (b"\n \n", "holds no problem"),
    "utf16.jsonl": (JSONL.decode().encode("utf-16"), "is UTF-16"),
    "gzip.jsonl": (gzip.compress(JSONL), "compressed with gzip"),
    "archive.jsonl": (b"PK\x03\x04" + JSONL, "a zip archive"),
    "page.jsonl": (b"\n<!DOCTYPE html>\n<html>404</html>\n", "an HTML or XML page"),
    "pointer.jsonl": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "a Git LFS pointer"),
    "comma.jsonl": (b"id,problem,answer\na,Why?,2\n", "row 1: the line is not JSON"),
    "comma.csv": (b"id,problem,answer\na,Why?,2\n", "ends in '.csv'"),
    "columns.jsonl": (b'{"text": "Why?", "label": 1}\n', "no column for the problem"),
    "zeros.jsonl": (b"\0" * 5000, "row 1: the line is not JSON"),
    "list.json": (b'[{"problem": "x", "answer": "1"}, 3]', "row 2: the entry is a int"),
    "torn.json": (b'[{"problem": "x", "answer": "1"}, {"pro', "row 1: the line is not JSON"),
    "deep.json": (b"[" * 200_000, "row 1: the line is not JSON"),
    "half.parquet": (PARQUET[: len(PARQUET) // 2], "is not a Parquet file"),
    "tail.parquet": (PARQUET[:-4] + b"XXXX", "is not a Parquet file"),
    "page.parquet": (PARQUET[:100] + bytes(2000) + PARQUET[2100:], "is damaged after row"),
    "other.parquet": (JSONL, "is not a Parquet file"),
    "columns.parquet": (table([{"text": "Why?"}]), "no column for the problem"),
}


PIECES = (b"\0", b"\xff", b"\n", b'"', b"{", b"\\u", b"\xe2\x80\xa8", b"\r", b",", b"null")


def mutated(number: int) -> bytes:
    """A file of good rows with bytes flipped, dropped, doubled or moved; a function of the number."""
    rng = Random(f"rows {number}")
    data = bytearray(JSONL)
    for _ in range(rng.choice((1, 1, 2, 8))):
        place = rng.randrange(len(data))
        length = rng.choice((1, 1, 2, 30))
        piece = bytes(data[place : place + length])
        match rng.randrange(5):
            case 0:
                data[place] ^= 1 << rng.randrange(8)
            case 1:
                del data[place : place + length]
            case 2:
                data[place:place] = piece
            case 3:
                data[place:place] = rng.choice(PIECES)
            case 4:
                other = rng.randrange(len(data))
                data[other:other] = piece
    return bytes(data)
