"""Read the scalars that a run logged: CSV, JSON Lines, trainer_state.json, TensorBoard's events, the text of a console.

scalars.toml has the names of the columns. Every file is streamed, and what cannot be read costs its own line.
"""

import csv
import json
import math
import os
import re
import struct
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from io import BufferedReader, TextIOWrapper
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pmdkit import untrusted
from pmdkit.errors import UsageError, first_line, short, unknown
from pmdkit_lab.dumps.readers import COLUMNS, KNOWN, MAX_NUMBER, MAX_STREAM, Source, leaving_out, tokens_of_entropy

Values = NDArray[np.float64]
Entries = Iterator[tuple[str, str, Mapping[str, Any]]]  # the run, the metric of a tidy table, what was logged together
NAMES: dict[str, list[str]] = tomllib.loads((Path(__file__).parent / "scalars.toml").read_text(encoding="utf-8"))[
    "names"
]
OURS = {theirs: ours for ours, names in NAMES.items() for theirs in names}
WANDB = [NAMES["step"].index(name) for name in ("_step", "Step")]  # ranks of its own counter, of rows
MAX_LINE = untrusted.MIB  # characters of a line, bytes of an event; a step of a thousand metrics has a twentieth of it
MAX_JSON = 64 * untrusted.MIB  # bytes of a JSON file; trainer_state.json of ten thousand steps has a third of it
MAX_POINTS = 2**14  # steps in memory, of all runs of a log: with the most columns, 0.1 GB
MAX_PARTS = 20  # components of the reward
MAX_NAMES = 2**14  # different names of columns whose meaning is remembered
LONGEST_NAME = 200  # characters of a name that can be known
PACKED = (".gz", ".bz2", ".xz", ".zst", ".zip")
MAX_RUNS = 64  # in one log
SNIFFED = 50  # records that decide whether a file holds responses or scalars
# where 0 in every step says that nothing was measured
NOT_MEASURED = ["entropy", "kl", "kl_step", "kl_response", "kl_engine", "loss", "lr", "ratio_mean", "ratio_max"]
PART = re.compile(r"rewards?/(?!(?:all|mean|std|min|max|avg_)(?:/|$))([^/]+)(?:/mean)?|avg_(.+)_reward|(.+_reward)_avg")
HELD = re.compile(r"(?:val|eval|test)(?:-core)?[/_](?:.*[/_])?(?:reward|acc|accuracy|score)(?:/mean)?(?:@\d+)?")
PAIR = re.compile(r"'([\w/.\- ]{1,99})': '?(-?(?:\d[\d.eE+-]{0,30}|nan|inf))'?")  # of a dict as Python prints it
METRIC = re.compile(r"([\w/.@-]{1,99}):(-?(?:\d[\d.eE+-]{0,30}|nan|inf))(?=\s|$)")  # of verl's console: step:34 - a:1.0

BARS = re.compile(r"\| *([A-Z][\w. -]{1,40}): (-?(?:\d[\d.eE+-]{0,30}|nan|inf))")  # of prime-rl's: Step 3 | Loss: 1.0


@dataclass
class Log:
    """The scalars of one run: `step` and, by our names, columns of equal length with NaN where nothing was logged.

    `parts` holds the components of the reward, by their own names.
    """

    name: str
    step: Values
    columns: dict[str, Values]
    parts: dict[str, Values]

    def get(self, key: str) -> Values | None:
        """A column at its logged steps, None if nothing was measured: a constant 0 is not, where 0 cannot last."""
        values = self.columns.get(key)
        if key == "silent" and values is None and (mixed := self.get("mixed")) is not None:
            return 1 - mixed
        if values is None:
            return None
        known = values[~np.isnan(values)]
        return None if not len(known) or (key in NOT_MEASURED and not known.any()) else known

    def steps_of(self, key: str) -> Values:
        """The steps at which a column was logged."""
        values = self.columns["mixed" if key == "silent" and key not in self.columns else key]
        return self.step[~np.isnan(values)]


@dataclass
class Growing:
    """A run while it is read: a row for each `stride`-th step, with what was logged after it and is not in it."""

    rows: dict[float, dict[str, float]] = field(default_factory=dict)
    stride: int = 1
    count: int = 0  # of steps
    last: float = -math.inf
    keys: set[str] = field(default_factory=set)  # logged at the last step
    parts: set[str] = field(default_factory=set)
    row: dict[str, float] = field(default_factory=dict)  # the newest in `rows`

    def take(self, step: float, values: dict[str, float]) -> bool:
        """Add what was logged at a step; False if the step counter began anew, so this is another run."""
        if step < self.last or (step == self.last and not self.keys.isdisjoint(values.keys() - {"trained"})):
            return False
        if step > self.last:
            self.keys.clear()
            if self.count % self.stride == 0:
                self.row = self.rows[step] = {}
            self.count += 1
        self.last = step
        self.keys.update(values)
        for key, value in () if values.keys() <= self.row.keys() else values.items():
            if key.startswith("part ") and key not in self.parts:
                if len(self.parts) >= MAX_PARTS:
                    continue
                self.parts.add(key)
            self.row.setdefault(key, value)
        return True

    def thin(self, most: int) -> None:
        """Drop every second row while there are more than `most`; the one before it gets what it lacks."""
        while len(self.rows) > most:
            steps = list(self.rows)
            for kept, dropped in zip(steps[::2], steps[1::2], strict=False):
                self.rows[kept] = self.rows.pop(dropped) | self.rows[kept]
            self.row = self.rows[next(reversed(self.rows))]
            self.stride *= 2


def joined(name: str, pieces: Iterable[Growing]) -> Log:
    """The columns of a run, from what was logged together, or from each metric of a tidy table."""
    rows: dict[float, dict[str, float]] = defaultdict(dict)
    for piece in pieces:
        for step, row in piece.rows.items():
            rows[step] |= row
    steps, keys = sorted(rows), dict.fromkeys(key for row in rows.values() for key in row)
    table = {key: np.array([rows[step].get(key, math.nan) for step in steps]) for key in keys}
    parts = [key for key in table if key.startswith("part ")][:MAX_PARTS]
    columns = {key: x for key, x in table.items() if not key.startswith("part ")}
    count = np.array(steps)
    if (trained := columns.pop("trained", None)) is not None:  # wandb numbers its rows, and the trainer its steps
        known = ~np.isnan(trained)
        count = np.interp(count, count[known], trained[known]) if (np.diff(trained[known]) > 0).all() else count
    return Log(name, count, columns, {key.removeprefix("part "): table[key] for key in parts})


def number(value: Any) -> float | None:
    """A finite number, also as text; None if it is something else."""
    if isinstance(value, str):
        try:
            value = float(value[:40])
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= MAX_NUMBER:
        return None
    return float(value)


@dataclass
class Names:
    """The meaning of names of columns: ours, and its rank among the names that mean the same; None if it is not known.

    `given` are names of the user's, to ours.
    """

    given: Mapping[str, str]
    known: dict[str, tuple[str, int] | None] = field(default_factory=dict)

    def __getitem__(self, name: str) -> tuple[str, int] | None:
        if name in self.known:
            return self.known[name]
        found = self.look_up(name) if len(name) <= LONGEST_NAME else None
        if len(self.known) < MAX_NAMES and len(name) <= LONGEST_NAME:
            self.known[name] = found
        return found

    def look_up(self, name: str) -> tuple[str, int] | None:
        """The meaning of a name."""
        plain = name.rpartition(" - ")[2].removeprefix("train/")
        if (ours := self.given.get(name) or self.given.get(plain)) is not None:
            return ours, -1
        if (ours := OURS.get(plain)) is not None:
            return ours, NAMES[ours].index(plain)
        if HELD.fullmatch(plain):
            return "held_out", len(NAMES["held_out"])
        part = PART.fullmatch(plain)
        return (f"part {next(filter(None, part.groups()))[:60]}", 0) if part else None

    def numbers(self, entry: Mapping[str, Any]) -> dict[str, float]:
        """The finite numbers of an entry under our names; a component of the reward under `part NAME`.

        Of several columns with one meaning, the lowest rank counts. `lost loss` is 1 where the loss is NaN or infinite.
        """
        values, ranks, known = dict[str, float](), dict[str, int](), self.known
        for key, given in flat(entry) if dict in map(type, entry.values()) else entry.items():
            if (meaning := known[key] if key in known else self[key]) is None:
                continue  # as most columns of a log
            ours, rank = meaning
            if (value := number(given)) is None:
                if ours in ("loss", "grad_norm") and str(given)[:40].strip().lower().lstrip("-")[:3] in ("nan", "inf"):
                    values[f"lost {ours}"] = 1.0
                continue
            if ours == "kl" and "log_ratio_min" in entry:  # metrics.jsonl of pmdkit: of a response, before the step
                ours = "kl_response"
            if ours not in values or rank < ranks[ours]:
                values[ours], ranks[ours] = value, rank
        if "trained" in values and ranks.get("step", -1) not in WANDB:
            values.setdefault("step", values.pop("trained"))
        if "entropy" in values:
            about = ("log_ratio_min", "token_entropy", "response_length")  # in a table they are texts
            values["entropy"] /= tokens_of_entropy({key: number(entry[key]) for key in about if key in entry})
        return values


def flat(entry: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Keys and values of an entry; a nested object counts both with its name and, if it is `data`, without."""
    for key, value in entry.items():
        if not isinstance(value, dict):
            yield key, value
        elif key in ("data", "metrics", "logs"):
            yield from value.items()
        else:
            yield from ((f"{key}/{name}", inner) for name, inner in value.items())


# ---- Formats: each yields what was logged together


def lines(stream: BufferedReader, source: Source, where: str) -> Iterator[str]:
    """The lines of a text in UTF-8, or in UTF-16 if it begins with its mark; one that is too long is left out whole."""
    wide = stream.peek(2)[:2] in (b"\xff\xfe", b"\xfe\xff")  # as PowerShell writes what it redirects
    text, skipping = TextIOWrapper(stream, "utf-16" if wide else "utf-8-sig", "replace", newline="\n"), False
    try:
        for line in iter(lambda: text.readline(MAX_LINE), ""):
            ended = line.endswith("\n")
            if not skipping and (ended or len(line) < MAX_LINE):
                yield line
            elif not skipping:
                source.leave_out(f"lines longer than {MAX_LINE:,} characters", where)
            skipping = not ended
    finally:
        if not stream.closed:
            text.detach()  # whoever opened the stream closes it


def from_csv(stream: BufferedReader, source: Source, where: str) -> Entries:
    """A table with a row for each step, or with columns `metric`, `step`, `value` and a row for each number."""
    text, before = lines(stream, source, where), sum(count for count, _ in source.left_out.values())
    head = next(text, "")
    if sum(count for count, _ in source.left_out.values()) > before:
        raise UsageError(f"{where} has a first line of more than {MAX_LINE:,} characters; expected names of columns")
    table = csv.reader(text, delimiter="\t" if head.count("\t") > head.count(",") else ",")
    places: dict[str, int] = {}
    for n, title in enumerate(next(csv.reader([head], table.dialect), [])):
        if title:
            places.setdefault(title, n)  # of two that are equal, the first
    titles, long = list(places), {"metric", "value"} <= places.keys()
    run = next((title for title in titles if title in ("run", "run_name", "run_id")), None)
    # wandb writes a chart of several runs as columns "NAME - METRIC"
    several = list(dict.fromkeys(title.rpartition(" - ")[0] for title in titles if " - " in title))[:MAX_RUNS]
    while True:
        try:
            cells = next(table)
        except StopIteration:
            return
        except csv.Error as problem:
            source.leave_out(f"rows that are no CSV ({problem})", where)
            continue
        row = {title: cells[n] for title, n in places.items() if n < len(cells) and cells[n]}
        name = row.get(run, "") if run else ""
        if long and "metric" in row and "value" in row:
            step = next((row[name] for name in NAMES["step"] + NAMES["trained"] if name in row), None)
            yield name, row["metric"][:LONGEST_NAME], {row["metric"]: row["value"], "step": step}
        elif len(several) > 1:
            for each in several:
                yield each, "", {title: x for title, x in row.items() if title.rpartition(" - ")[0] in ("", each)}
        elif not long:
            yield name, "", row


def from_json_lines(stream: BufferedReader, source: Source, where: str) -> Entries:
    """An object for each step."""
    for line in lines(stream, source, where):
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            entry = None
        if isinstance(entry, dict):
            yield "", "", entry
        else:
            source.leave_out("lines that are not JSON objects", where)


def from_json(stream: BufferedReader, source: Source, where: str) -> Entries:
    """trainer_state.json of transformers, or a list of objects, decoded one after another."""
    data = stream.read(MAX_JSON + 1)
    if len(data) > MAX_JSON:
        raise UsageError(f"{where} has more than {MAX_JSON:,} bytes; write its log_history as JSON Lines")
    text = data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig", "replace")
    begin = re.match(r"\s*\[", text) or re.search(r'"(?:log_history|history)"\s*:\s*\[', text)
    if begin is None:
        raise UsageError(f"{where} has no log_history; expected trainer_state.json, or a list of objects")
    place, decoder = begin.end(), json.JSONDecoder()
    while (found := re.compile(r"[\s,]*").match(text, place)) and text[found.end() : found.end() + 1] not in ("]", ""):
        place, entry, size = found.end(), None, 2**12
        while True:  # a piece at a time: how long a value is shows when it is decoded
            try:
                entry, length = decoder.raw_decode(text[place : place + size])
                break
            except (ValueError, RecursionError) as problem:
                if size >= MAX_LINE or place + size >= len(text):
                    raise UsageError(f"{where} is damaged at character {place:,} ({first_line(problem)})") from None
                size *= 16
        place += length
        if isinstance(entry, dict):
            yield "", "", entry
        else:
            source.leave_out("entries that are not objects", where)


def from_text(stream: BufferedReader, source: Source, where: str) -> Entries:
    """The console of a trainer: dicts as Python prints them, by the number of the bar before, `step:1 - a:2`, or
    `Step 1 | A: 2`."""
    for line in lines(stream, source, where):
        if "': " in line and (pairs := dict(PAIR.findall(line))):
            numbered = re.findall(r"\| (\d{1,9})/\d", line.partition("{")[0])  # of the bar before it
            yield "", "", ({"step": numbered[-1]} if numbered else {}) | pairs
        elif (bar := re.search(r"\bStep (\d{1,9}) \|", line)) and (pairs := dict(BARS.findall(line))):
            yield "", "", {"step": bar[1]} | pairs
        elif "step:" in line and (pairs := dict(METRIC.findall(line))):
            yield "", "", pairs


def from_events(stream: BufferedReader, source: Source, where: str) -> Entries:
    """TensorBoard's events: a length (8 bytes), a checksum (4), a protocol buffer, a checksum (4). None is checked."""
    while len(head := stream.read(12)) == 12:
        size = struct.unpack("<Q", head[:8])[0]
        if size > MAX_LINE:
            if size > MAX_STREAM:
                raise UsageError(f"{where} is damaged: an event of {size:,} bytes")
            source.leave_out(f"events longer than {MAX_LINE:,} bytes", where)
            stream.seek(size + 4, os.SEEK_CUR)
            continue
        event = stream.read(size + 4)[:size]
        try:
            fields = list(protobuf(event))
            step = next((value for key, value in fields if key == 2 and isinstance(value, int)), 0)
            for key, summary in fields:
                for each, value in protobuf(summary) if key == 5 and isinstance(summary, bytes) else ():
                    if each == 1 and isinstance(value, bytes) and (scalar := summary_value(value)) is not None:
                        yield "", "", {scalar[0]: scalar[1], "step": step}
        except (ValueError, IndexError, struct.error):
            source.leave_out("events that are no protocol buffer", where)


def summary_value(data: bytes) -> tuple[str, float] | None:
    """Tag and number of a `Summary.Value`, some of which hold a tensor; None if it holds something else."""
    parts = dict(protobuf(data))
    tag, plain, tensor = parts.get(1), parts.get(2), parts.get(8)
    if plain is None and isinstance(tensor, bytes):
        inside = dict(protobuf(tensor))
        plain = inside.get(5, inside.get(4)) if inside.get(1) == 1 else None  # float_val or tensor_content of float32
    if not isinstance(tag, bytes) or not isinstance(plain, bytes) or len(plain) != 4:
        return None
    return tag.decode(errors="replace"), struct.unpack("<f", plain)[0]


def protobuf(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Numbers and values of the fields of a protocol buffer: whole numbers, and bytes for everything else."""
    place = 0

    def varint() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = data[place]
            place += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
            if shift > 63:
                raise ValueError("a number of more than 64 bits")

    while place < len(data):
        tag = varint()
        kind = tag & 7
        if kind == 0:
            yield tag >> 3, varint()
            continue
        size = {1: 8, 5: 4}.get(kind) or (varint() if kind == 2 else -1)
        if not 0 <= size <= len(data) - place:
            raise ValueError("a field longer than its message")
        yield tag >> 3, data[place : place + size]
        place += size


def reader_of(file: Path) -> Callable[[BufferedReader, Source, str], Entries] | None:
    """The reader of a file by its name; None for a file that holds no scalars."""
    if "tfevents" in file.name:
        return from_events
    kinds: dict[str, Any] = {
        ".csv": from_csv, ".tsv": from_csv, ".jsonl": from_json_lines, ".ndjson": from_json_lines, ".json": from_json,
        ".log": from_text, ".txt": from_text, ".out": from_text,
    }  # fmt: skip
    return kinds.get(file.suffix.lower())


# ---- The entrance


def holds_scalars(path: Path, columns: Mapping[str, str]) -> bool:
    """Whether a path holds scalars and no responses, by the names of its files and their first records."""
    if columns.keys() - NAMES.keys():
        return False
    return bool(files := scalar_files(path)) and not any(holds_responses(file, columns) for file in files)


def scalar_files(path: Path) -> list[Path]:
    """The files of scalars below a path; none beside files of responses, and the last of several trainer_state.json."""
    if not path.is_dir():
        return [path] if reader_of(path) else []
    below = [Path(folder, name) for folder, _, names in os.walk(path) for name in names]
    if any(file.suffix in (".parquet", ".pt", ".safetensors") and "checkpoint" not in str(file) for file in below):
        return []
    states = [file for file in below if file.name == "trainer_state.json"]
    last = max(states, key=lambda file: int(("".join(re.findall(r"\d+", file.parent.name)) or "0")[:15]), default=None)
    logs = [file for file in below if "tfevents" in file.name or file.suffix.lower() in (".csv", ".jsonl", ".ndjson")]
    return [last] if last is not None and not any(file.suffix.lower() == ".jsonl" for file in logs) else sorted(logs)


def holds_responses(file: Path, columns: Mapping[str, str]) -> bool:
    """Whether the first records of a JSON Lines file are responses: they have their keys, or one step has several."""
    if file.suffix.lower() not in (".jsonl", ".ndjson") or not file.is_file():
        return False
    with untrusted.open_file(file, MAX_STREAM) as stream:
        entries = [
            entry for (_, _, entry), _ in zip(from_json_lines(stream, Source(), ""), range(SNIFFED), strict=False)
        ]
    if any(
        entry.keys() >= set(known["keys"]) - {"rollout_id_of_file"} for entry in entries for known in KNOWN["format"]
    ):
        return True
    if not columns:
        return False
    keys = [str(entry.get(columns.get("step", ""))) for entry in entries]
    return len(entries) > 1 and (bool(columns.keys() - {"step"} <= set(COLUMNS)) and len(set(keys)) < len(keys))


def read_logs(path: Path, columns: Mapping[str, str], source: Source) -> list[Log]:
    """All runs in a log, in order: a run ends where the step counter does not grow.

    Args:
        path: a file, or a folder with scalars.
        columns: our name of a column to theirs, before the names that are known.
        source: filled with what is left out.

    Raises:
        UsageError: there is no such path, a name is not ours, or no column is known.
    """
    for name in columns:
        if name not in NAMES:
            raise UsageError(unknown("column", name, tuple(NAMES)))
    if not os.path.exists(path):
        raise UsageError(f"{path} does not exist; give a log, a run folder, or a folder of dumps")
    if path.suffix in PACKED:
        raise UsageError(f"{path} is packed; unpack it and give the log that is in it")
    names = Names({name: ours for ours, name in columns.items()})
    runs: list[
        tuple[str, dict[str, Growing]]
    ] = []  # the starts of the step counter, each by the metrics of a tidy table
    seen, held = dict[str, None](), 0
    for file in scalar_files(path):
        reader, starts = reader_of(file), dict[str, list[dict[str, Growing]]]()
        current: dict[tuple[str, str], int] = {}  # the start of a run that a metric is in
        with leaving_out(source, str(file)), untrusted.open_file(file, MAX_STREAM) as stream:
            for count, (run, metric, entry) in enumerate(reader(stream, source, str(file)) if reader else ()):
                if len(seen) < 50 and not entry.keys() <= seen.keys():
                    seen |= dict.fromkeys(list(map(str, entry))[:50])
                values = names.numbers(entry)
                step = values.pop("step", None)
                if values.keys() <= {"trained"}:
                    continue
                start, begun = current.get((run, metric), 0), starts.get(run, [])
                growing = begun[start].get(metric) if begun else None
                at = step if step is not None else growing.last + 1 if growing and growing.rows else float(count)
                if growing is None or not growing.take(at, values):
                    start += growing is not None
                    full = start == len(begun) and len(runs) >= MAX_RUNS
                    if full or (start < len(begun) and len(begun[start]) >= MAX_RUNS):
                        what = "starts of the step counter" if full else "metrics of a tidy table"
                        source.leave_out(f"entries after {MAX_RUNS} {what}", str(file))
                        continue
                    if start == len(begun):
                        begun = starts.setdefault(run, begun)
                        begun.append({})
                        runs.append((run[:LONGEST_NAME] or file.name, begun[-1]))
                    current[run, metric], growing = start, Growing()
                    begun[start][metric] = growing
                    growing.take(at, values)
                    held += 1
                    for each in (each for _, pieces in runs for each in pieces.values()):
                        each.thin(MAX_POINTS // held)
                growing.thin(MAX_POINTS // held)
    logs = [joined(name, pieces.values()) for name, pieces in runs]
    if not any("reward" in log.columns or log.parts for log in logs):
        raise UsageError(
            f"{path} logs no reward under a known name; it has {short(list(seen))} ({source.reasons}): name it with "
            "--columns reward=...,step=..."
        )
    for log in logs:
        if "reward" not in log.columns and log.parts:
            log.columns["reward"] = np.sum(list(log.parts.values())[:MAX_PARTS], 0)
    return logs
