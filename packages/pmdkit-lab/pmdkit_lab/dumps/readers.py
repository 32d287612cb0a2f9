"""Read the dumps of trainers, one response at a time. formats.toml names the source, version and columns of each
format; this file holds the formats that need more than a table of names. `read` is the entrance.

Dumps come from strangers. Every file is opened by `pmdkit.untrusted`, every record is checked in `rows_of`, and every
value in `typed`: a bad file, record or value costs itself alone, and the report counts it.
"""

import json
import math
import os
import pickle
import re
import tomllib
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, BinaryIO

from pmdkit import untrusted
from pmdkit.cli.output import shown
from pmdkit.errors import PmdkitError, UsageError, first_line, short, unknown
from pmdkit.extras import need

Record = dict[str, Any]
Place = tuple[int, int]
KNOWN = tomllib.loads((Path(__file__).parent / "formats.toml").read_text(encoding="utf-8"))
METRICS: dict[str, list[str]] = KNOWN["metrics"]
MAX_LINE = 64 * untrusted.MIB  # bytes: a response of a million tokens with two log-probabilities each has half of it
MAX_VALUES = 2**24  # values and characters of a record: the same response has 6 million; as Python objects, 0.5 GB
MAX_STREAM = 2**40  # bytes of a file that is read line by line: 17 hours at a minute a gigabyte
MAX_STEPS = 2**16  # steps of a run: their measures take 0.3 GB
MAX_REASONS = 20  # different reasons for leaving something out; more are counted together
MAX_NUMBER = 1e30  # the product of two squares of it is a number in float64, and it is a number in float32
MAX_WHOLE = 2**53  # larger whole numbers are not exact as a float
PROGRESS_SIZE = 256 * untrusted.MIB  # a file of this size takes ten seconds or more
PARQUET_ROWS = 256  # rows of a Parquet file in memory at a time, fewer where the cells may be large
MAX_RATIO = 200  # bytes of a Parquet file that is unpacked, for each byte on disk; text is packed ten to one


@dataclass(slots=True)
class Row:
    """One response as a trainer wrote it; None where the dump lacks a value. `make_row` checks the types.

    Attributes:
        step: training step, from the record or from the name of its file.
        group: name shared by the responses that share a baseline; None where the dump names no groups.
        gold: the right answer.
        advantage: of the response; the mean over its tokens where each has an advantage.
        cut: whether the response ended at the limit of its length.
        version: number of the policy that drew it, the oldest if several did.
        logp_engine, logp, logp_ref: log-probabilities of its tokens: reported by the engine that drew them, computed by
            the trainer before its update, and under the reference policy.
        logp_after: log-probabilities after the step. All four may be a sum over the response, in a list of length 1.
        entropy: of the policy, nats per token.
        mask_late: whether the first token that the engine drew is outside the trainer's mask.
    """

    step: int | None = None
    group: str | None = None
    prompt: str | None = None
    response: str | None = None
    gold: str | None = None
    reward: float | None = None
    advantage: float | None = None
    length: int | None = None
    cut: bool | None = None
    version: int | None = None
    logp_engine: list[float] | None = None
    logp: list[float] | None = None
    logp_ref: list[float] | None = None
    logp_after: list[float] | None = None
    entropy: float | None = None
    mask_late: bool | None = None


COLUMNS = tuple(each.name for each in fields(Row))
PMDKIT_STEPS = {"name": "pmdkit, steps", "columns": {name: name for name in COLUMNS}}


@dataclass
class Source:
    """Facts about a dump, filled while its rows stream.

    Attributes:
        read: number of rows by name of the format.
        left_out: reason to count and first place, for everything that could not be read.
        metrics: values that the trainer logged, by step; names as in METRICS.
        config: config.json of a run folder of pmdkit, else empty.
        files: every file that was opened, in order. A row's place is the index of its file here and its record number.
    """

    read: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, tuple[int, str]] = field(default_factory=dict)
    metrics: dict[int, dict[str, float]] = field(default_factory=dict)
    config: Record = field(default_factory=dict)
    files: list[Path] = field(default_factory=list)

    @property
    def reasons(self) -> str:
        """All reasons in `left_out` as text."""
        return "; ".join(f"{n} x {why} ({at})" for why, (n, at) in self.left_out.items()) or "no dump was found"

    def leave_out(self, why: str, where: str) -> None:
        """Count something that was not read; the first place is kept."""
        if why not in self.left_out and len(self.left_out) >= MAX_REASONS:
            why = "more, for other reasons"
        count, first = self.left_out.get(why, (0, where))
        self.left_out[why] = (count + 1, first)

    def take_metrics(self, step: int, logged: Mapping[str, Any]) -> None:
        """Keep the values that a trainer logged for a step, under our names."""
        for ours, theirs in METRICS.items():
            value = next((logged[name] for name in theirs if is_number(logged.get(name))), None)
            if value is not None and (step in self.metrics or len(self.metrics) < MAX_STEPS):
                self.metrics.setdefault(step, {})[ours] = float(value)
        if "entropy" in self.metrics.get(step, {}):
            self.metrics[step]["entropy"] /= tokens_of_entropy(logged)


def tokens_of_entropy(logged: Mapping[str, Any]) -> float:
    """How many tokens the logged `entropy` is of: a response in metrics.jsonl of pmdkit, where the log has no
    `token_entropy`; else 1."""
    length: Any = logged.get("response_length")
    of_response = "log_ratio_min" in logged and not is_number(logged.get("token_entropy"))
    return float(length) if of_response and is_number(length) and length > 0 else 1.0


# ---- Formats that need more than a table of names: each function takes a record and the values of its named columns,
# and yields the values of each row. `make_row` checks their types.


def trl(record: Record, values: Record) -> Iterator[Record]:
    """TRL writes one column per reward function, under its name; the total is their sum. Weights are not written."""
    own = {"step", "prompt", "completion", "advantage"}
    parts = [value for key, value in record.items() if key not in own and is_number(value)]
    yield values | {"reward": sum(parts) if parts else None}


def open_instruct(record: Record, values: Record) -> Iterator[Record]:
    """open-instruct writes tokens instead of text, in which no answer can be read."""
    tokens = numbers(record["response_tokens"]) or []
    yield values | {"length": len(tokens), "response": " ".join(f"<{token:g}>" for token in tokens)}


def prime_rl(record: Record, values: Record) -> Iterator[Record]:
    """An episode of prime-rl has a trace for each agent; the model wrote the nodes marked as sampled. The record names
    the step that asked for it; the folder names the step that trained on it, which counts."""
    work, data = (record.get("run") or {}).get("work") or {}, record["task"]["data"]
    for trace in record["traces"] if work.get("type", "train") == "train" else ():
        sampled = [node for node in trace["nodes"] if node.get("sampled")]
        rewards = [(each["score"], each.get("weight", 1.0)) for each in trace.get("rewards", {}).values() if each]
        if not all(is_number(value) for pair in rewards for value in pair):
            raise ValueError("a score or a weight is not a number")
        logp = [value for node in sampled for value in node.get("logprobs") or ()]
        yield {
            "group": (record.get("group") or {}).get("id"),
            "prompt": data.get("prompt"),
            "response": [node["message"] for node in sampled],
            "gold": data.get("answer"),
            "reward": sum(score * weight for score, weight in rewards) if rewards else None,
            "advantage": [value for node in sampled for value in node.get("advantages") or ()],
            "length": len(logp) or None,
            "cut": any(call.get("finish_reason") == "length" for call in trace.get("calls", [])[-1:]),
            "version": (work.get("policy") or {}).get("start"),
            "logp_engine": logp,
        }


def prime_rl_tokens(record: Record, values: Record) -> Iterator[Record]:
    """Token exports of prime-rl. The engine reports 0 where it drew nothing, so its first other number belongs to the
    first token that it drew."""
    trained = [place for place, in_mask in enumerate(record["loss_mask"]) if in_mask]
    first = next((place for place, value in enumerate(record["inference_logprobs"]) if value), None)
    if trained:
        yield {
            "step": record["step"],
            "length": len(trained),
            "advantage": [record["advantages"][n] for n in trained],
            "entropy": [record["entropy"][n] for n in trained],
            "logp_engine": [record["inference_logprobs"][n] for n in trained],
            "logp": [record["trainer_logprobs"][n] for n in trained],
            "mask_late": first is not None and first < trained[0],
        }


def torchtitan(record: Record, values: Record) -> Iterator[Record]:
    """torchtitan writes no step, so the version of the policy stands for it. By default it keeps only a group's extreme
    rewards."""
    turns = record["turns"]
    if not record["is_validation"] and turns:
        logp = [value for turn in turns for value in turn.get("completion_logprobs") or ()]
        versions = [[turn[f"{end}_policy_version"] or 0 for turn in turns] for end in ("min", "max")]
        yield {
            "step": max(versions[1]),
            "group": record["group_id"],
            "prompt": turns[0]["prompt_messages"],
            "response": [turn["completion_message"] for turn in turns],
            "reward": record["reward"],
            "advantage": record.get("advantage"),
            "length": len(logp) or None,
            "cut": "truncated" in str(record["status"])[:100].lower(),
            "version": min(versions[0]),
            "logp_engine": logp,
        }


SPECIAL: dict[str, Callable[[Record, Record], Iterator[Record]]] = {
    "trl": trl, "open_instruct": open_instruct, "prime_rl": prime_rl, "prime_rl_tokens": prime_rl_tokens,
    "torchtitan": torchtitan,
}  # fmt: skip


def recording(file: Path) -> Iterator[Record]:
    """The rows of a recorded step of pmdkit (pmdkit/recording.py), rollouts/step-N.safetensors. A step-N.jsonl beside
    it has texts and rewards."""
    from pmdkit_lab.dumps.recorded import RecordingText, decode

    step = decode(untrusted.read_bytes(file, untrusted.LARGE), str(file))
    elsewhere, words, mass = file.with_suffix(".jsonl").exists(), RecordingText(step, file.parents[1]), step["mass"]
    old, engine = step["logp_old"], step.get("logp_engine")
    policies = {
        "logp_engine": old if engine is None else engine, "logp": None if engine is None else old,
        "logp_ref": step.get("logp_ref"), "logp_after": step.get("logp_after"),
    }  # fmt: skip
    trained_elsewhere, golds, cut = step.about["env"] in ("trl", "verl"), step.about.get("golds"), step.get("cut")
    for n, mask in enumerate(step.mask):
        group, place = divmod(n, mass.shape[1])
        values = {"step": step.about["step"], "version": step.about["version"], "length": int(mask.sum())}
        if trained_elsewhere:  # the recorders of pmdkit_adapters write whole responses
            values["cut"] = values["length"] >= step.about["width"] if cut is None else bool(cut[n])
        for name, logp in policies.items():
            if logp is not None and n < len(logp):
                values[name] = logp[n][mask] if logp.ndim == 2 else logp[n]
        if not elsewhere:
            values |= {"group": group, "prompt": words.prompt(group), "response": words.response(n)}
            values |= {} if golds is None else {"gold": golds[group]}
            values["reward"] = float(step["reward"][group, place]) if mass[group, place] > 0 else None
        yield values


# ---- Values


def is_number(value: Any) -> bool:
    """Whether a value is a finite number of a usual size; true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_NUMBER


def is_missing(value: Any) -> bool:
    """Whether a value says that nothing was measured: None, or NaN."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def numbers(values: Any) -> list[float] | None:
    """The numbers in a list or a tensor; None if there are none, or one of them is missing.

    Raises:
        ValueError: it holds something else.
    """
    if hasattr(values, "reshape"):
        values = values.reshape(-1).tolist()
    if not isinstance(values, list | tuple):
        raise ValueError("not a list of numbers")
    if any(map(is_missing, values)):
        return None
    if not all(map(is_number, values)):
        raise ValueError("not a list of numbers")
    return [float(value) for value in values] or None


def whole(value: Any) -> int | None:
    """A whole number, also as a float or as text; None if it is something else, or too large to be exact."""
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,15}", value):
        value = int(value)
    if not is_number(value) or abs(value) > MAX_WHOLE or value != int(value):
        return None
    return int(value)


def text(value: Any) -> str | None:
    """A prompt or completion as text: itself, the contents of its messages, or its tokens."""
    if isinstance(value, Mapping):
        value = value.get("content")
    if isinstance(value, list | tuple):
        return "\n".join(str(each) if is_number(each) else text(each) or "" for each in value)
    return value if isinstance(value, str) else None


def typed(name: str, value: Any) -> Any:
    """A value in the type of its column; None if it is missing.

    Raises:
        ValueError: it has another type; the message names the expected one.
    """
    if is_missing(value):
        return None
    if name == "version" and isinstance(value, list):  # one for each turn: the oldest counts
        value = min((version for version in map(whole, value) if version is not None), default=None)
    if name in ("step", "length", "version"):
        number = whole(value)
        if number is None or (name == "length" and number < 0):
            raise ValueError("not a whole number")
        return number
    if name.startswith("logp"):
        return numbers([value] if is_number(value) else value)
    if name in ("prompt", "response"):
        words = text(value)
        if words is None:
            raise ValueError("not text, messages or tokens")
        return words
    if name in ("gold", "group"):
        if not (isinstance(value, str | bool) or is_number(value)):
            raise ValueError("neither text nor a number")
        return str(value)
    if name in ("cut", "mask_late"):
        if not isinstance(value, bool):
            raise ValueError("not true or false")
        return value
    if hasattr(value, "reshape") or isinstance(value, list):  # one number for each token
        each = numbers(value)
        return sum(each) / len(each) if each else None
    if not (is_number(value) or isinstance(value, bool)):
        raise ValueError("not a number")
    return float(value)


def make_row(values: Mapping[str, Any], source: Source, where: str) -> Row:
    """A row with every value in the type of its column; a value of another type is left out and counted.

    Raises:
        ValueError: the step has another type, so the row has no place.
    """
    row = Row()
    for name, value in values.items():
        try:
            setattr(row, name, typed(name, value))
        except ValueError as problem:
            if name == "step":
                raise ValueError(f"step is {short(value)}, {problem}") from None
            source.leave_out(f"values of {name}, {problem}", where)
    return row


# ---- Records


def check_record(record: Any) -> Record:
    """The record, if it is an object of a usual size and depth. A value that occurs in several places counts in each.

    Raises:
        ValueError: the record is not an object, is too large, or is nested too deeply; or a tensor is not plain memory.
    """
    if not isinstance(record, dict) or not all(isinstance(key, str) for key in record):
        raise ValueError("not an object with names")
    count = 0
    layer: list[Any] = [record]
    for _ in range(untrusted.DEEPEST):
        values = [value for outer in layer for value in (outer.values() if isinstance(outer, dict) else outer)]
        layer = []
        for value in values:
            if isinstance(value, str | bytes | dict | list | tuple):
                count += len(value)
                if not isinstance(value, str | bytes):
                    layer.append(value)
            elif hasattr(value, "untyped_storage"):
                count += check_tensor(value)
            if count > MAX_VALUES:
                raise ValueError(f"it holds more than {MAX_VALUES:,} values and characters")
        if not layer:
            return record
    raise ValueError(f"nested more than {untrusted.DEEPEST} deep")


def check_tensor(tensor: Any) -> int:
    """The number of values of a tensor. Raises ValueError unless they are in memory, each in its own place."""
    if str(tensor.layout) != "torch.strided" or tensor.device.type != "cpu" or tensor.is_quantized:
        raise ValueError("a tensor is not plain memory")
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        raise ValueError("a tensor repeats its values")
    return int(tensor.numel())


def rows_of(record: Any, named: Mapping[str, Any] | None, source: Source, where: str) -> list[Row]:
    """The rows of a record: in a named format, or else in the format that its keys show. Metrics go into `source`.

    A record that does not fit costs itself alone: it is left out and counted, whatever is wrong with it.
    """
    format_name = "records"
    try:
        check_record(record)
        if named is None:
            known = next((each for each in KNOWN["format"] if record.keys() >= set(each["keys"])), None)
        else:
            known = named if record.keys() & set(named["columns"].values()) else None
        if known is None:
            step = whole(record.get("step"))
            if step is None or named is not None:
                raise ValueError(f"without a known set of columns: {short(sorted(record))}")
            source.take_metrics(step, record["data"] if isinstance(record.get("data"), dict) else record)
            return []
        format_name = f"records of {known['name']}"
        values = {}
        for ours, theirs in known.get("columns", {}).items():
            key, sign, word = theirs.partition("=")
            value = record.get(key)
            values[ours] = value == word if sign and value is not None else value
        several = SPECIAL[known["rows"]](record, values) if "rows" in known else (values,)
        rows = [make_row(each, source, where) for each in several]
    except Exception as problem:  # a stranger's record can raise anything
        reason = f"no {problem}" if isinstance(problem, KeyError) else first_line(problem)
        source.leave_out(f"{format_name}: {reason}", where)
        return []
    if known["name"] == "TRL" and sum(key not in known["keys"] and is_number(x) for key, x in record.items()) > 1:
        source.leave_out("weights of reward columns, which TRL does not write: their sum was taken", where)
    if rows:
        source.read[known["name"]] = source.read.get(known["name"], 0) + len(rows)
    return rows


# ---- Files


def parquet_records(file: Path, source: Source) -> Iterator[Any]:
    """The records of a Parquet file, streamed. A few bytes of Parquet can stand for gigabytes of equal values.
    So the sizes in its footer are checked first, and large cells are unpacked a row at a time."""
    parquet = need("pyarrow.parquet", f"reading {file}")
    with untrusted.open_file(file, MAX_STREAM) as stream, parquet.ParquetFile(stream) as table:
        size = max(os.fstat(stream.fileno()).st_size, 1)
        number = 0
        for group in range(table.num_row_groups):
            about = table.metadata.row_group(group)
            values = sum(about.column(n).num_values for n in range(about.num_columns))
            unpacked = max(about.total_byte_size, 1)
            if about.num_rows > size or unpacked + values > MAX_LINE + MAX_RATIO * size:
                raise UsageError(
                    f"{file} unpacks {size:,} bytes to {about.num_rows:,} rows, {values:,} values and {unpacked:,} "
                    "bytes; write it again as JSON Lines"
                )
            rows = max(1, min(PARQUET_ROWS, 4 * MAX_LINE // unpacked))  # each cell may be as large as all of them
            for batch in table.iter_batches(batch_size=rows, row_groups=[group], use_threads=False):
                for n in range(batch.num_rows):
                    number += 1
                    row = batch.slice(n, 1)
                    try:
                        if row.nbytes > MAX_LINE:
                            raise ValueError(f"it has more than {MAX_LINE:,} bytes")
                        record = row.to_pylist()[0]
                    except Exception as problem:  # dates beyond year 9999, text that is not UTF-8
                        source.leave_out(f"records: {first_line(problem)}", f"{file}:{number}")
                        record = None
                    yield record


def torch_records(file: Path) -> Iterator[Any]:
    """The records of a dump of slime, loaded as a whole: only tensors and plain values."""
    import torch

    with untrusted.open_file(file) as stream:
        # torch reads older files too, and packed ones, whose size says nothing of the memory that they take
        with zipfile.ZipFile(stream) as archive:
            parts = archive.infolist()
            pickled = b"".join(archive.read(part) for part in parts if part.filename.endswith("data.pkl"))
            packed = any(part.compress_type != zipfile.ZIP_STORED for part in parts)
        if packed or sum(part.file_size for part in parts) > untrusted.LARGE or ALLOCATES.search(pickled):
            raise UsageError("a .pt file is not as torch.save writes it; save it again")
        stream.seek(0)
        try:
            whole_file = torch.load(stream, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError:  # torch's own message advises to run the file's code
            raise UsageError("it holds more than tensors and plain values; no code in a dump runs here") from None
    for record in whole_file["samples"]:
        yield record | {"rollout_id_of_file": whole_file["rollout_id"]} if isinstance(record, dict) else record


# Calls that torch allows in a file of weights, in which a few bytes decide how much memory they take: an array of any
# size, and text encoded again and again. Bytes are written as text in latin1, which is harmless.
ALLOCATES = re.compile(
    rb"c(builtins|__builtin__)\nbytearray\n|c_codecs\nencode\n.*[X\x8c].{1,4}(hex|base|quo|uu)", re.DOTALL | re.I
)


def json_records(file: Path, source: Source) -> Iterator[Any]:
    """The records of a file of JSON Lines, streamed."""
    with untrusted.open_file(file, MAX_STREAM) as stream, with_progress(stream, file) as shown_stream:
        for number, line in enumerate(iter(lambda: shown_stream.readline(MAX_LINE), b""), 1):
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                record = None
            if not isinstance(record, dict):
                cut = "" if line.endswith(b"\n") else " (cut short, or longer than 64 MiB)"
                source.leave_out(f"lines that are not JSON objects{cut}", f"{file}:{number}")
                record = None
            yield record


def records(file: Path, source: Source) -> Iterator[Any]:
    """Whatever stands at the place of each record of a file, unchecked; None for a record that is already left out.

    Raises:
        UsageError: the file cannot be read.
    """
    if file.suffix == ".parquet":
        yield from parquet_records(file, source)
    elif file.suffix == ".pt":
        yield from torch_records(file)
    elif file.suffix != ".safetensors":
        yield from json_records(file, source)
    elif file.parent.name == "rollouts":
        yield from recording(file)


def with_progress(stream: BinaryIO, file: Path) -> AbstractContextManager[BinaryIO]:
    """The stream; while a large file is read, a terminal shows the progress on stderr."""
    size = file.stat().st_size
    if size < PROGRESS_SIZE:
        return nullcontext(stream)
    from rich.console import Console
    from rich.progress import wrap_file

    words = f"reading {shown(file.name)}"
    return wrap_file(stream, size, description=words, console=Console(stderr=True), transient=True)


def read_config(path: Path, source: Source) -> None:
    """Read config.json of a run folder of pmdkit, if there is one."""
    file = path / "config.json"
    if os.path.lexists(file):
        with leaving_out(source, str(file)):
            config = untrusted.read_json(file)
            if not (isinstance(config, dict) and isinstance(config.get("objective", {}), dict)):
                raise UsageError("a config.json that is not of pmdkit")
            source.config = config


def read_trainer_state(file: Path, source: Source) -> None:
    """Read the metrics of TRL's trainer_state.json (transformers, `TrainerState.log_history`)."""
    for logged in untrusted.read_json(file, MAX_LINE, numbers=False)["log_history"]:
        step = whole(logged.get("step")) if isinstance(logged, dict) else None
        if step is None:
            source.leave_out("entries of log_history without a step", str(file))
        else:
            source.take_metrics(step, logged)


@contextmanager
def leaving_out(source: Source, where: str) -> Iterator[None]:
    """Context for one file: whatever it raises, the file is left out and counted."""
    try:
        yield
    except PmdkitError as problem:
        source.leave_out(str(problem), where)
    except Exception as problem:  # torch, pyarrow and zipfile raise many kinds on damaged files
        source.leave_out(f"files that cannot be read ({type(problem).__name__}: {first_line(problem)})", where)


def superseded(file: Path, root: Path) -> bool:
    """Whether a file holds weights or untrained rows: evaluations, or `all` episodes if `effective` exists."""
    twin = file.parent.parent / "effective" / file.name
    parts = file.relative_to(root).parts  # the folders above the run say nothing about it
    weights = any(part.startswith("checkpoint") for part in parts) and file.suffix != ".json"
    return (
        weights
        or not {"eval", "evaluations"}.isdisjoint(parts)
        or file.stem.startswith("eval_")
        or (file.parent.name == "all" and twin.exists())
    )


def column_names(option: str | None) -> dict[str, str]:
    """pmdkit's names of columns to those of the dump, from `--columns reward=score,prompt=question`."""
    pairs = [pair.partition("=") for pair in (option or "").split(",") if pair]
    if not all(sign and theirs for _, sign, theirs in pairs):
        raise UsageError(f"--columns got {option!r}; expected our names and theirs: reward=score,prompt=question")
    return {ours.strip(): theirs.strip() for ours, _, theirs in pairs}


def dump_files(path: Path) -> list[Path]:
    """The files below a path that may be dumps, in the order of the numbers in their names. Links are not followed."""
    suffixes = (".jsonl", ".parquet", ".pt", ".safetensors", ".json")
    below = [path] if path.is_file() else [
        Path(folder, name) for folder, _, names in os.walk(path) for name in names if name.endswith(suffixes)
    ]  # fmt: skip
    return sorted(below, key=lambda each: ([int(n) for n in re.findall(r"[0-9]+", str(each))], each.name))


def read(path: Path, columns: Mapping[str, str], source: Source) -> Iterator[tuple[Place, Row]]:
    """All rows below a path in the order of their steps, each with its place; see `Source` for the rest.

    Args:
        path: a file or a folder.
        columns: our name of a column to theirs, for files in an unknown format.
        source: filled on the way.

    Raises:
        UsageError: there is no such path, or `columns` has a name that is not ours.
    """
    for name in columns:
        if name not in COLUMNS:
            raise UsageError(unknown("column", name, COLUMNS))
    if not os.path.exists(path):  # Path.exists raises for some impossible names
        raise UsageError(f"{path} does not exist; give a run folder, a folder of dumps, or one file")
    stepped = False  # whether a row had a step
    for file in dump_files(path):
        if superseded(file, path):
            continue
        if file.suffix == ".json":
            if file.name == "trainer_state.json":
                with leaving_out(source, str(file)):
                    read_trainer_state(file, source)
            continue
        source.files.append(file)
        named = {"name": "columns", "columns": columns} if columns else None
        if file.suffix == ".safetensors":
            named = PMDKIT_STEPS
        # the step in the name: `step_12/rank_0.jsonl`, `12.jsonl`, `step-12.jsonl`
        numbered = re.findall(r"(?:step|rollout)[_-]?([0-9]+)", "/".join(file.parts[-5:])) or re.findall(
            r"^[0-9]+$", file.stem
        )
        with leaving_out(source, str(file)):
            for number, record in enumerate(records(file, source), 1):
                if record is None:
                    continue
                for row in rows_of(record, named, source, f"{file}:{number}"):
                    if row.step is None and numbered:
                        row.step = whole(numbered[-1])
                    if row.step is None and stepped:  # it would be measured with the first of the other rows
                        source.leave_out("rows without a step, after rows with one", f"{file}:{number}")
                        continue
                    stepped = stepped or row.step is not None
                    yield (len(source.files) - 1, number), row
