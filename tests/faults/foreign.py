"""Mutations of files from elsewhere, each a function of its number: of values, of text, of what kind of file it is.

Values change inside of a structure that stays whole: another type, a key less or twice, deeper, larger, not a number,
a text that steers a terminal. Text is cut, flipped, given another encoding. A file becomes a pipe, a folder, a link.
"""

import json
import os
import shutil
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\u2066\u2028\ud800\x7f[red]no[/red][/]\r"
VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 3, 7.5, -0.0, 1e-300, 1e300, 2**31, 2**53 + 1, 2**63 - 1, 2**64, -(2**70), 10**400,
    "", "x", "1", "nan", "../../x", "/dev/zero", "a" * 3000, EVIL, [], {}, [[]], [None], [1, "a"], {"a": 1}, {"": {}},
]  # fmt: skip
RAW = ["NaN", "Infinity", "-Infinity", "1e999", "9" * 5000, "[" * 100_000, '{"a":' * 5_000, "-", "", '"\\ud800"', "01"]
"Text in place of a value: what Python's own writer of JSON would not write, or no other reader would take."
PLACE = "@@place@@"


def mutate_value(rng: Random, value: Any) -> Any:
    """A copy of a JSON value with one to three changes somewhere inside."""
    root = [deepcopy(value)]
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        home, key = rng.choice(places(root))
        change(rng, home, key)
    return root[0]


def places(root: list[Any]) -> list[tuple[Any, Any]]:
    """Every container and key, but few of those in a long list: the vocabulary of a tokenizer is one table of many."""
    found, rest = [], [(root, 0)]
    while rest:
        home, key = rest.pop()
        found.append((home, key))
        inner = home[key]
        keys = list(inner) if isinstance(inner, dict) else list(range(len(inner))) if isinstance(inner, list) else []
        rest += [(inner, each) for each in (keys if len(keys) < 60 else keys[:5] + keys[-5:])]
    return found


def change(rng: Random, home: Any, key: Any) -> None:
    """One change at a place."""
    old = home[key]
    kind = rng.randrange(8)
    if kind == 0 and isinstance(home, dict):
        del home[key]
    elif kind == 1 and isinstance(home, dict):
        home[rng.choice((key + "_", EVIL, "", "__class__", "name"))] = home.pop(key)
    elif kind == 2 and isinstance(old, int | float) and not isinstance(old, bool):
        home[key] = rng.choice((-old, old + 1, old * 2, old * 10**6, str(old), [old], 0))
    elif kind == 3 and isinstance(old, str):
        home[key] = rng.choice((old + EVIL, old[::-1], old.upper(), old + "x", [old], {"name": old}))
    elif kind == 4 and isinstance(old, list | dict) and old:
        home[key] = rng.choice((old * 2, old[::-1], old[:1], old[0])) if isinstance(old, list) else list(old.values())
    elif kind == 5:
        for _ in range(rng.choice((1, 5, 70, 400))):
            old = [old] if rng.random() < 0.5 else {"a": old}
        home[key] = old
    else:
        home[key] = deepcopy(rng.choice(VALUES))


def mutate_json(rng: Random, data: bytes) -> bytes:
    """The text of a changed value; of JSON Lines, of one of its lines."""
    lines = data.decode().splitlines()
    try:
        value, place = json.loads(data), None
    except ValueError:
        place = rng.randrange(len(lines))
        value = json.loads(lines[place])
    if rng.random() < 0.2:
        home, key = rng.choice(places([value]))
        raw = rng.choice(RAW)
        if isinstance(home, dict) or home[0] is not value:
            home[key] = PLACE
            text = json.dumps(value).replace(json.dumps(PLACE), raw)
        else:
            text = raw
        if rng.random() < 0.3 and text.startswith("{"):
            text = text[:-1] + ', "step": 1, "step": 2}'
    else:
        text = json.dumps(mutate_value(rng, value))
    if place is not None:
        lines[place] = text
        text = "\n".join(lines)
    return text.encode() + b"\n"


def mutate_bytes(rng: Random, data: bytes) -> bytes:
    """Damage without a thought for what the bytes mean."""
    kind = rng.randrange(9)
    place = rng.randrange(len(data)) if data else 0
    if kind == 0:
        return data[:place]
    if kind == 1:
        return data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :]
    if kind == 2:
        return data[:place] + rng.randbytes(rng.choice((1, 4, 40))) + data[place:]
    if kind == 3:
        return data[:place] + data[place + rng.choice((1, 5, 100)) :]
    if kind == 4:
        return data + data
    if kind == 5:
        return b"\xef\xbb\xbf" + data
    if kind == 6:
        return data.decode("utf-8", "replace").encode("utf-16")
    if kind == 7:
        return rng.choice((b"", b"\0" * 1000, b"null", b"[]", b"{}", b'"x"', b"\xff\xfe", b"\x1f\x8b\x08", b"<html>"))
    return data[:place] + EVIL.encode("utf-8", "surrogatepass") + data[place:]


def other_file(rng: Random, path: Path) -> None:
    """Something else in place of the file: a pipe nobody writes to, a folder, a link to what never ends."""
    path.unlink()
    kind = rng.randrange(8)
    if kind == 0:
        os.mkfifo(path)
    elif kind == 1:
        path.mkdir()
    elif kind == 2:
        path.symlink_to("/dev/zero")
    elif kind == 3:
        path.symlink_to("/proc/self/mem")
    elif kind == 4:
        path.symlink_to(path.name)
    elif kind == 5:
        path.symlink_to("nowhere")
    elif kind == 6:
        with path.open("wb") as file:
            file.truncate(2**40 * 8)  # a hole: it takes no room on the disk
    # 7: it is gone


def mutate(
    rng: Random, path: Path, content: Callable[[Random, bytes], bytes] = mutate_json, others: tuple[Path, ...] = ()
) -> str:
    """Change a file in place: mostly its content, sometimes its bytes, its kind, or it is swapped with another."""
    draw = rng.random()
    if draw < 0.7:
        path.write_bytes(content(rng, path.read_bytes()))
        return "values"
    if draw < 0.85:
        path.write_bytes(mutate_bytes(rng, path.read_bytes()))
        return "bytes"
    if draw < 0.95 or not others:
        other_file(rng, path)
        return "kind"
    shutil.copyfile(rng.choice(others), path)
    return "swapped"


def mutate_safetensors(rng: Random, data: bytes) -> bytes:
    """The header is changed, the tensors stay."""
    length = int.from_bytes(data[:8], "little")
    header = mutate_json(rng, data[8 : 8 + length]).strip()
    if rng.random() < 0.1:
        return rng.choice((2**63, 2**31, len(header) - 1)).to_bytes(8, "little") + header + data[8 + length :]
    return len(header).to_bytes(8, "little") + header + data[8 + length :]


def mutate_toml(rng: Random, data: bytes) -> bytes:
    """A value of one line is another one, a line is there twice, or of somebody else."""
    lines = data.decode().splitlines()
    place = rng.randrange(len(lines))
    key, equals, _ = lines[place].partition("=")
    value = rng.choice([*RAW, *(json.dumps(v).replace("null", "nan") for v in VALUES), "1979-05-27", "0x" + "f" * 5000])
    kind = rng.randrange(6)
    if kind < 3 and equals:
        lines[place] = f"{key}= {value}"
    elif kind == 3:
        lines.insert(place, lines[place])
    elif kind == 4:
        lines[place] = rng.choice(("[env]", "[[env]]", "[x.y.z]", "= 1", f'"{EVIL[:6]}" = 1', "[", "x" * 5000))
    else:
        del lines[place]
    return "\n".join(lines).encode("utf-8", "surrogatepass")
