"""Rows and files that nobody wants in a data set, each with the reason that is told."""

import gzip
import io
import json
from random import Random

import pyarrow
from pyarrow import parquet

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
    "the same id, other content": (line(id="p1"), "id 'p1' is that of row 1"),
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
    "gzip.jsonl": (gzip.compress(JSONL), "compressed by gzip"),
    "archive.jsonl": (b"PK\x03\x04" + JSONL, "a zip archive"),
    "page.jsonl": (b"\n<!DOCTYPE html>\n<html>404</html>\n", "a page in HTML"),
    "pointer.jsonl": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "a pointer of Git LFS"),
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
