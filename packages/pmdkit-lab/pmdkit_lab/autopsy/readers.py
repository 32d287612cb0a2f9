"""What trainers write, streamed one response at a time. formats.toml names each format's source, version and columns;
here is what a table of names cannot say. `read` is the entrance.
"""

import json
import os
import pickle
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, BinaryIO

from pmdkit import foreign
from pmdkit.cli.output import shown
from pmdkit.errors import PmdkitError, UsageError, first_line, short, unknown
from pmdkit.extras import need
from pmdkit.observe.run_folder import read_json

Record = dict[str, Any]
Place = tuple[int, int]
KNOWN = tomllib.loads((Path(__file__).parent / "formats.toml").read_text(encoding="utf-8"))
METRICS: dict[str, list[str]] = KNOWN["metrics"]
LONGEST = 64 * foreign.MIB  # of one line: a response of a million tokens with two log-probabilities each has half of it
SLOW = 256 * foreign.MIB  # a file of this size takes ten seconds or more
BATCH = 256  # rows of a Parquet file in memory at a time


@dataclass(slots=True)
class Row:
    """One response as a trainer wrote it; None where it did not.

    Attributes:
        step: training step, from the record or from the name of its file.
        group: which responses share a baseline; the prompt where no group is named.
        gold: the right answer.
        advantage: of the response; the mean over its tokens where each has one.
        cut: whether the response ended at the limit of its length.
        version: the policy that drew it, the oldest if several did.
        logp_engine, logp, logp_ref: log-probabilities of its tokens: reported by the engine that drew them, computed by
            the trainer before its update, and under the reference policy.
        logp_after: the same after the step; all four may be a sum over the response, a list of one.
        entropy: of the policy, nats per token.
        mask_late: whether the first token that the engine drew is outside the trainer's mask.
    """

    step: int | None = None
    group: Any = None
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


@dataclass
class Source:
    """What was read and what was left out, filled while the rows stream.

    Attributes:
        read: rows by name of the format.
        left_out: reason to count and the first place.
        metrics: values that the trainer logged, by step; names as in METRICS.
        config: of a run folder of pmdkit, else empty.
        files: every file that was opened, in order; a row's place is its index here and the number of its record.
    """

    read: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, tuple[int, str]] = field(default_factory=dict)
    metrics: dict[int, dict[str, float]] = field(default_factory=dict)
    config: Record = field(default_factory=dict)
    files: list[Path] = field(default_factory=list)

    @property
    def reasons(self) -> str:
        """Everything that was left out, in words."""
        return "; ".join(f"{n} x {why} ({at})" for why, (n, at) in self.left_out.items()) or "no dump was found"

    def leave_out(self, why: str, where: str) -> None:
        """Count something that was not read; the first place is kept."""
        count, first = self.left_out.get(why, (0, where))
        self.left_out[why] = (count + 1, first)

    def take_metrics(self, step: int, logged: Mapping[str, Any]) -> None:
        """Keep what a trainer logged of a step, under our names."""
        for ours, theirs in METRICS.items():
            value = next((logged[name] for name in theirs if foreign.is_number(logged.get(name))), None)
            if value is not None:
                self.metrics.setdefault(step, {})[ours] = float(value)


# ---- Records that need more than names; each gives the rows of one record, `row` holds what the names gave


def trl(record: Record, row: Row) -> Iterator[Row]:
    """A column for each reward function has its name; the total is their sum, weights are not written."""
    own = {"step", "prompt", "completion", "advantage"}
    parts = [value for key, value in record.items() if key not in own and foreign.is_number(value)]
    row.reward = sum(parts) if parts else None
    yield row


def open_instruct(record: Record, row: Row) -> Iterator[Row]:
    """Tokens stand for the text, in which no answer can be read."""
    row.length = len(record["response_tokens"])
    row.response = " ".join(f"<{token}>" for token in record["response_tokens"])
    yield row


def prime_rl(record: Record, row: Row) -> Iterator[Row]:
    """An episode has a trace for each agent; what the model wrote are the nodes that were sampled. The folder names the
    step that trained on it, the record the one that asked for it."""
    work, data = (record.get("run") or {}).get("work") or {}, record["task"]["data"]
    for trace in record["traces"] if work.get("type", "train") == "train" else ():
        drawn = [node for node in trace["nodes"] if node.get("sampled")]
        rewards = [each["score"] * each.get("weight", 1.0) for each in trace.get("rewards", {}).values() if each]
        logp = [value for node in drawn for value in node.get("logprobs") or ()]
        yield Row(
            group=(record.get("group") or {}).get("id"),
            prompt=text(data.get("prompt")),
            response="\n".join(text(node["message"]) or "" for node in drawn),
            gold=fitting("gold", data.get("answer")),
            reward=sum(rewards) if rewards else None,
            advantage=fitting("advantage", [value for node in drawn for value in node.get("advantages") or ()]),
            length=len(logp) or None,
            cut=any(call.get("finish_reason") == "length" for call in trace.get("calls", [])[-1:]),
            version=(work.get("policy") or {}).get("start"),
            logp_engine=logp or None,
        )


def prime_rl_tokens(record: Record, row: Row) -> Iterator[Row]:
    """The engine reports 0 where it drew nothing, so its first other number is the first token that it drew."""
    on = [place for place, there in enumerate(record["loss_mask"]) if there]
    first = next((place for place, value in enumerate(record["inference_logprobs"]) if value), None)
    if on:
        row.step, row.length = record["step"], len(on)
        row.advantage, row.entropy = (
            fitting("advantage", [record[key][n] for n in on]) for key in ("advantages", "entropy")
        )
        row.logp_engine, row.logp = (
            numbers([record[f"{who}_logprobs"][n] for n in on]) for who in ("inference", "trainer")
        )
        row.mask_late = first is not None and first < on[0]
        yield row


def torchtitan(record: Record, row: Row) -> Iterator[Row]:
    """No step is written: the version of the policy stands in. By default only a group's extreme rewards are kept."""
    turns = record["turns"]
    if not record["is_validation"] and turns:
        logp = [value for turn in turns for value in turn.get("completion_logprobs") or ()]
        yield Row(
            step=max(turn["max_policy_version"] or 0 for turn in turns),
            group=str(record["group_id"]),
            prompt=text(turns[0]["prompt_messages"]),
            response="\n".join(text(turn["completion_message"]) or "" for turn in turns),
            reward=record["reward"],
            advantage=record.get("advantage"),
            length=len(logp) or None,
            cut="truncated" in str(record["status"]).lower(),
            version=min(turn["min_policy_version"] or 0 for turn in turns),
            logp_engine=logp or None,
        )


SPECIAL: dict[str, Callable[[Record, Row], Iterator[Row]]] = {
    "trl": trl, "open_instruct": open_instruct, "prime_rl": prime_rl, "prime_rl_tokens": prime_rl_tokens,
    "torchtitan": torchtitan,
}  # fmt: skip


def recording(file: Path) -> Iterator[Row]:
    """pmdkit, pmdkit/recording.py: rollouts/step-N.safetensors. A step-N.jsonl beside it has texts and rewards."""
    from pmdkit_lab.replay.recorded import RecordingText, decode

    step = decode(foreign.read_bytes(file, foreign.LARGE), str(file))
    elsewhere, words, mass = file.with_suffix(".jsonl").exists(), RecordingText(step, file.parents[1]), step["mass"]
    old, engine = step["logp_old"], step.get("logp_engine")
    kept = {
        "logp_engine": old if engine is None else engine, "logp": None if engine is None else old,
        "logp_ref": step.get("logp_ref"), "logp_after": step.get("logp_after"),
    }  # fmt: skip
    for n, on in enumerate(step.mask):
        group, place = divmod(n, mass.shape[1])
        row = Row(step=step.about["step"], version=step.about["version"], length=int(on.sum()))
        for name, logp in kept.items():
            if logp is not None and n < len(logp):
                setattr(row, name, numbers(logp[n][on] if logp.ndim == 2 else logp[n]))
        if not elsewhere:
            row.group, row.prompt, row.response = group, words.prompt(group), words.response(n)
            row.reward = float(step["reward"][group, place]) if mass[group, place] > 0 else None
        yield row


# ---- Values, records, files


def numbers(values: Any) -> list[float] | None:
    """Numbers from a list or a tensor; None if there are none, or one of them is missing."""
    found = values.reshape(-1).tolist() if hasattr(values, "reshape") else values
    return found if isinstance(found, list) and found and all(foreign.is_number(value) for value in found) else None


def text(value: Any) -> str | None:
    """A prompt or completion as text: itself, the contents of its messages, or its tokens."""
    if isinstance(value, Mapping):
        value = value.get("content")
    if isinstance(value, list | tuple):
        return "\n".join(str(each) if foreign.is_number(each) else text(each) or "" for each in value)
    return value if isinstance(value, str) else None


def fitting(name: str, value: Any) -> Any:
    """A value in the type of our column; None if it has another."""
    if name.startswith("logp"):
        return numbers([value] if foreign.is_number(value) else value)
    if name in ("prompt", "response"):
        return text(value)
    if name in ("gold", "group"):
        return None if value is None else str(value)
    if name in ("cut", "mask_late"):
        return value if isinstance(value, bool) else None
    if name == "version" and isinstance(value, list):
        return min((int(each) for each in value if str(each).isdigit()), default=None)
    if hasattr(value, "reshape") or isinstance(value, list):  # one for each token
        each = numbers(value)
        return sum(each) / len(each) if each else None
    if not (foreign.is_number(value) or isinstance(value, bool)):
        return None
    return int(value) if name in ("step", "length", "version") else float(value)


def rows_of(record: Record, columns: Mapping[str, str], source: Source, where: str) -> Iterator[Row]:
    """The rows of a record: by the given columns, else by the format that its keys show; metrics are taken aside."""
    kind = next((each for each in KNOWN["format"] if record.keys() >= set(each["keys"])), None)
    if columns:
        kind = {"name": "columns", "columns": columns} if record.keys() & set(columns.values()) else None
    if kind is None:
        if isinstance(record.get("step"), int) and not columns:
            source.take_metrics(record["step"], record["data"] if isinstance(record.get("data"), dict) else record)
        else:
            source.leave_out(f"records without a known set of columns: {short(sorted(record))}", where)
        return
    row = Row()
    for ours, theirs in kind.get("columns", {}).items():
        key, sign, one = theirs.partition("=")
        value = record.get(key)
        setattr(row, ours, fitting(ours, value == one if sign and value is not None else value))
    try:
        for each in SPECIAL[kind["rows"]](record, row) if "rows" in kind else (row,):
            source.read[kind["name"]] = source.read.get(kind["name"], 0) + 1
            yield each
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as problem:
        source.leave_out(f"records of {kind['name']}, of another version ({first_line(problem)})", where)


def records(file: Path, source: Source) -> Iterator[Record | Row]:
    """The records of one file, streamed; those of a recording of pmdkit are rows already."""
    if file.suffix == ".parquet":
        parquet = need("pyarrow.parquet", f"reading {file}")
        try:
            with parquet.ParquetFile(file, memory_map=False) as table:
                for batch in table.iter_batches(batch_size=BATCH):
                    yield from batch.to_pylist()
        except (OSError, ValueError) as problem:  # what pyarrow raises
            raise UsageError(f"a Parquet file cannot be read ({first_line(problem)})") from problem
    elif file.suffix == ".pt":
        import torch

        with foreign.open_file(file) as stream, foreign.shaped(file, "a dump of slime"):
            try:
                whole = torch.load(stream, map_location="cpu", weights_only=True)
            except (pickle.UnpicklingError, EOFError) as problem:
                why = "a .pt file holds more than tensors and plain values; loading that could run code"
                raise UsageError(f"{why} ({first_line(problem)})") from problem
            for record in whole["samples"]:
                yield record | {"rollout_id_of_file": whole["rollout_id"]}
    elif file.suffix == ".safetensors":
        yield from recording(file) if file.parent.name == "rollouts" else ()
    else:
        with foreign.open_file(file, most=2**62) as whole, with_progress(whole, file) as stream:
            for line in iter(lambda: stream.readline(LONGEST), b""):
                try:
                    found = json.loads(line)
                except (ValueError, RecursionError):
                    found = None
                if isinstance(found, dict):
                    yield found
                else:
                    cut = "" if line.endswith(b"\n") else " (cut short, or longer than 64 MiB)"
                    source.leave_out(f"lines that are not JSON objects{cut}", str(file))


def with_progress(stream: BinaryIO, file: Path) -> AbstractContextManager[BinaryIO]:
    """The stream; of a large file, a terminal shows on stderr how much is read."""
    size = file.stat().st_size
    if size < SLOW:
        return nullcontext(stream)
    from rich.console import Console
    from rich.progress import wrap_file

    words = f"reading {shown(file.name)}"
    return wrap_file(stream, size, description=words, console=Console(stderr=True), transient=True)


def read_settings(file: Path, run: Path, source: Source) -> None:
    """A run's own config.json, and TRL's trainer_state.json (transformers, `TrainerState.log_history`)."""
    if file.name == "config.json" and file.parent == run:
        source.config = read_json(file)
    elif file.name == "trainer_state.json":
        with foreign.shaped(file, "the state of a trainer"):
            for logged in foreign.read_json(file, foreign.LARGE, numbers=False)["log_history"]:
                source.take_metrics(int(logged["step"]), logged)


def superseded(file: Path, root: Path) -> bool:
    """Whether it holds weights, or rows not trained on: evaluations, all episodes beside the effective ones."""
    twin = file.parent.parent / "effective" / file.name
    parts = file.relative_to(root).parts  # what lies above the run says nothing about it
    weights = any(part.startswith("checkpoint") for part in parts) and file.suffix != ".json"
    return (
        weights
        or not {"eval", "evaluations"}.isdisjoint(parts)
        or file.stem.startswith("eval_")
        or (file.parent.name == "all" and twin.exists())
    )


def column_names(given: str | None) -> dict[str, str]:
    """Our names of columns to theirs, from `--columns reward=score,prompt=question`."""
    pairs = [pair.partition("=") for pair in (given or "").split(",") if pair]
    if not all(sign and theirs for _, sign, theirs in pairs):
        raise UsageError(f"--columns got {given!r}; expected our names and theirs: reward=score,prompt=question")
    return {ours.strip(): theirs.strip() for ours, _, theirs in pairs}


def read(path: Path, columns: Mapping[str, str], source: Source) -> Iterator[tuple[Place, Row]]:
    """All rows below a path in the order of their steps, each with its place; see `Source` for the rest.

    Args:
        path: a file or a folder.
        columns: our name of a column to theirs, for files in a format of their own.
        source: filled on the way.

    Raises:
        UsageError: there is no such path, or `columns` has a name that is not ours.
    """
    for name in columns:
        if name not in COLUMNS:
            raise UsageError(unknown("column", name, COLUMNS))
    if not os.path.exists(path):  # Path.exists raises for some impossible names
        raise UsageError(f"{path} does not exist; give a run folder, a folder of dumps, or one file")
    suffixes = (".jsonl", ".parquet", ".pt", ".safetensors", ".json")
    below = [path] if path.is_file() else [each for each in path.rglob("*") if each.suffix in suffixes]
    for file in sorted(below, key=lambda each: ([int(n) for n in re.findall(r"\d+", str(each))], each.name)):
        if superseded(file, path):
            continue
        try:
            if file.suffix == ".json":
                read_settings(file, path, source)
                continue
            source.files.append(file)
            # the step that the name says: `step_12/rank_0.jsonl`, `12.jsonl`, `step-12.jsonl`
            named = re.findall(r"(?:step|rollout)[_-]?(\d+)", "/".join(file.parts[-5:])) or re.findall(
                r"^\d+$", file.stem
            )
            for number, found in enumerate(records(file, source), 1):
                if isinstance(found, Row):
                    source.read["pmdkit, steps"] = source.read.get("pmdkit, steps", 0) + 1
                    yield (len(source.files) - 1, number), found
                    continue
                for row in rows_of(found, columns, source, f"{file}:{number}"):
                    if row.step is None and named:
                        row.step = int(named[-1])
                    yield (len(source.files) - 1, number), row
        except PmdkitError as problem:
            source.leave_out(str(problem), str(file))
