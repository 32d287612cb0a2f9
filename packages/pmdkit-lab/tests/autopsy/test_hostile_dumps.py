"""Dumps from strangers: whatever a field, a record or a file holds, it costs itself alone, in bounded memory."""

import json
import os
import subprocess
import sys
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from pmdkit_lab.dumps.readers import Source, make_row, read, typed, whole
from tests.nightly import mostly_nightly

DEEP = "[" * 500 + "]" * 500
JUNK = {
    "none": None, "empty": "", "digit": "²", "digits": "7" * 5000, "nan": float("nan"), "inf": float("inf"),
    "minus": -1, "wide": 2**70, "list": [], "lists": [[1], "a", None], "keys": {1: 2}, "object": {"a": {"b": 1}},
    "deep": json.loads(DEEP),
    "bytes": b"\xff\x00", "long": "a " * 500_000, "bool": True, "text": "x\ud800\x1b[2J",
}  # fmt: skip
LOGP = [-0.5, -0.25]
PROMPTS = ("1 + 1?", "2 + 2?")


def responses(change):
    """Eight records of two prompts by `change(n, prompt, reward)`."""
    return [change(n, PROMPTS[n // 4], float(n % 4 == 1)) for n in range(8)]


def turn(prompt):
    return {
        "prompt_messages": [{"role": "user", "content": prompt}], "completion_message": {"content": "2"},
        "min_policy_version": 4, "max_policy_version": 7, "completion_logprobs": LOGP,
    }  # fmt: skip


def episode(n, prompt, reward):
    node = {"sampled": True, "message": {"content": "2"}, "logprobs": LOGP, "advantages": [reward, reward]}
    trace = {
        "nodes": [node], "rewards": {"a": {"score": reward, "weight": 0.5}}, "calls": [{"finish_reason": "length"}],
    }  # fmt: skip
    work = {"type": "train", "step": 7, "policy": {"start": 4}}
    return {
        "task": {"data": {"prompt": prompt, "answer": "2"}},
        "traces": [trace],
        "group": {"id": prompt},
        "run": {"work": work},
    }


# name of the format: file, a record, and the columns to name
FORMATS = {
    "trl": ("completions_7.parquet", lambda n, q, r: {
        "step": 7, "prompt": q, "completion": f"{n}", "advantage": r, "f": r,
    }, {}),
    "verl": ("7.jsonl", lambda n, q, r: {"input": q, "output": f"{n}", "gts": "1", "score": r, "step": 7}, {}),
    "slime": ("rollout_7.pt", lambda n, q, r: {
        "group_index": q, "prompt": [{"role": "user", "content": q}], "response": f"{n}", "reward": r, "label": "1",
        "status": "truncated", "response_length": 2, "weight_versions": ["5", "4"], "rollout_log_probs": LOGP,
    }, {}),
    "slime, training data": ("train_7.pt", lambda n, q, r: {
        "response_lengths": 2, "log_probs": torch.tensor(LOGP), "rollout_log_probs": torch.tensor(LOGP) - n / 8,
        "advantages": torch.tensor([r, r]), "ref_log_probs": LOGP,
    }, {}),
    "prime-rl": ("rollouts/step_7/train/effective/traces.jsonl", episode, {}),
    "prime-rl, tokens": ("token_exports/step_7/rank_0.jsonl", lambda n, q, r: {
        "schema_version": 1, "step": 7, "loss_mask": [False, True, True], "inference_logprobs": [0.0, *LOGP],
        "trainer_logprobs": [0.0, *LOGP], "advantages": [0.0, r, r], "entropy": [None, 1.0, 2.0],
    }, {}),
    "torchtitan": ("rollout_samples.jsonl", lambda n, q, r: {
        "group_id": q, "status": "truncated_length", "reward": r, "advantage": r,
        "turns": [turn(q)], "is_validation": False,
    }, {}),
    "open-instruct": ("run_rollouts_000000.jsonl", lambda n, q, r: {
        "step": 7, "prompt_idx": n // 4, "prompt_tokens": [1], "response_tokens": [2, n], "reward": r, "advantage": r,
        "finish_reason": "length", "logprobs": LOGP,
    }, {}),
    "pmdkit": ("rollouts/step-7.jsonl", lambda n, q, r: {
        "id": n // 4, "k": n % 4, "problem": q, "response": f"{n}", "answer": "1", "reward": r,
        "tokens": 2, "cut_off": False,
    }, {}),
    "columns": ("dump.jsonl", lambda n, q, r: {
        "t": 7, "g": n // 4, "q": q, "a": f"{n}", "y": "1", "r": r, "d": r, "n": 2, "c": False, "v": 6,
        "e": LOGP, "l": LOGP, "z": LOGP, "f": LOGP, "h": 1.0, "m": False,
    }, dict(zip(
        ("step", "group", "prompt", "response", "gold", "reward", "advantage", "length", "cut", "version",
         "logp_engine", "logp", "logp_after", "logp_ref", "entropy", "mask_late"), "tgqayrdncvelzfhm", strict=True)),
    ),
}  # fmt: skip
FORMATS["json"] = ("dump.jsonl", *FORMATS["columns"][1:])


def write(folder, name, records):
    """Write records as the format does. Parquet has one type for a column: a value that does not fit is none there."""
    file = folder / FORMATS[name][0]
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(records), file)
    elif file.suffix == ".pt":
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(10_000)  # of the writer
        torch.save({"rollout_id": 7, "samples": records}, file)
        sys.setrecursionlimit(limit)
    else:
        file.write_text("".join(json.dumps(record, default=str) + "\n" for record in records))
    return file


def fields_of(value, path=()):
    """The paths of all values inside a record."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield (*path, key)
        yield from fields_of(each, (*path, key))


def replaced(record, path, value):
    """A copy of a record with another value at a path."""
    if not path:
        return value
    inner = {**record} if isinstance(record, dict) else [*record]
    inner[path[0]] = replaced(record[path[0]], path[1:], value)
    return inner


FIELDS = [
    (name, path) for name, (_, make, _) in FORMATS.items() for path in fields_of(make(0, "q", 0.0)) if name != "trl"
]


@pytest.mark.parametrize(
    ("name", "path"),
    mostly_nightly(
        FIELDS,
        ("slime", ("weight_versions",)),
        ("columns", ("r",)),
        ("prime-rl", ("traces",)),
        ("torchtitan", ("turns", 0, "max_policy_version")),
    ),
    ids=str,
)  # fmt: skip
def test_an_odd_value_costs_at_most_its_record(name, path, call, tmp_path, capsys):
    """Eight good records, and one for each kind of junk: all good rows are read, both commands end as documented."""
    _, make, columns = FORMATS[name]
    good = responses(make)
    odd = [replaced(make(9, "3 + 3?", 1.0), path, value) for value in JUNK.values()]
    file = write(tmp_path, name, [*odd[:8], *good, *odd[8:]])
    places = {place[1] for place, _ in read(tmp_path, columns, Source())}
    assert places >= set(range(9, 17))
    option = ["--columns", ",".join("=".join(pair) for pair in columns.items())] if columns else []
    assert call("autopsy", tmp_path, *option, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["rows"] >= 8
    assert all(str(file) in each["first"] for each in report["left_out"])
    assert call("autopsy", tmp_path, *option) == 0
    capsys.readouterr()
    assert call("replay", tmp_path, *option, "--json") in (0, 2)
    printed = capsys.readouterr()
    assert json.loads(printed.out) if printed.out else "a bug" not in printed.err


# ---- Files


class Allocates:
    def __reduce__(self):
        return bytearray, (2**34,)


def pack_again(file):
    """Compress the parts of a .pt file."""
    with zipfile.ZipFile(file) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in parts.items():
            archive.writestr(name, data)


def forged_recording():
    """A recorded step whose header says that one number stands for 2**40."""
    from safetensors.numpy import load, save

    from pmdkit.recording import KEY, MACHINES, Recording, checksum, encode

    data = encode(Recording({}, torch.ones(1, 1, dtype=torch.bool), {"reward": torch.zeros(1, 1)}))
    outer = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    about, stored = json.loads(outer["__metadata__"][KEY])["about"], load(data)
    about["tensors"]["reward"]["shape"] = [2**40]
    words = MACHINES.encode(about)
    return save(stored, {KEY: f'{{"about":{words},"sha256":"{checksum(words, stored)}"}}'})


def write_hostile_files(folder):
    """Files that ask for much more than their size, or that never end."""
    (folder / "rollouts").mkdir()
    for name in ("a.parquet", "b.pt", "c.jsonl", "trainer_state.json", "rollouts/step-1.safetensors"):
        os.mkfifo(folder / name)
    sample = FORMATS["slime"][1](0, "q", 0.0)
    write(folder, "slime", [sample | {"rollout_log_probs": torch.zeros(1).expand(2**33)}])
    torch.save({"rollout_id": 1, "samples": [sample | {"reward": Allocates()}]}, folder / "rollout_1.pt")
    torch.save(
        {"rollout_id": 2, "samples": [sample | {"rollout_log_probs": torch.zeros(2**24)}]}, folder / "rollout_2.pt"
    )
    pack_again(folder / "rollout_2.pt")
    record = FORMATS["trl"][1](0, "q", 0.0)
    rows = {key: [value] * 1000 for key, value in record.items()}
    many = pa.array(np.zeros(1000, np.int32))
    for size, name in ((100_000_000, "wide.parquet"), (20_000_000, "broad.parquet")):
        cell = pa.DictionaryArray.from_arrays(many, pa.array(["a" * size]))
        pq.write_table(
            pa.table(rows | {"completion": cell}), folder / name, compression="none" if size < 5e7 else "zstd"
        )
    equal = pa.ListArray.from_arrays(pa.array([0, 2**27], pa.int32()), pa.array(np.zeros(2**27, np.int8)))
    pq.write_table(
        pa.table({"step": [1], "prompt": ["q"], "completion": ["a"], "advantage": equal}), folder / "equal.parquet"
    )
    (folder / "rollouts" / "step-2.safetensors").write_bytes(forged_recording())
    (folder / "rollouts" / "step-²-3.safetensors").write_bytes(b"")
    (folder / "deep.jsonl").write_text("[" * 10**6 + "\n")
    (folder / "hole.jsonl").write_bytes(b"")
    os.truncate(folder / "hole.jsonl", 2**41)
    return 14


PEAK = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
print("peak", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(code)
"""
"A small parent: a child's peak includes its parent's memory before exec, and this process has written large files."


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["autopsy", "replay"])
def test_hostile_files_are_left_out_in_bounded_memory(verb, tmp_path):
    """They lie beside a good dump, which is read."""
    count = write_hostile_files(tmp_path)
    (tmp_path / "config.json").write_text('{"objective": []}')
    file = write(tmp_path, "columns", responses(FORMATS["columns"][1]))
    columns = ",".join("=".join(pair) for pair in FORMATS["columns"][2].items())
    command = [sys.executable, "-c", PEAK, sys.executable, "-m", "pmdkit", verb, ".", "--columns", columns, "--json"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    report = json.loads(run.stdout)
    assert len(report["left_out"]) >= 8
    assert sum(each["count"] for each in report["left_out"]) >= count
    assert verb == "replay" or report["rows"] == 8
    assert int(run.stderr.rpartition("peak ")[2]) < 2**20  # KiB; Python and torch alone take 0.45 GiB
    assert file.exists()


def test_a_row_without_a_step_does_not_join_the_first_one(tmp_path):
    rows = [{"s": step, "r": float(n % 2), "p": "q"} for step in (0, 1) for n in range(4)]
    rows += [{"s": None, "r": 1.0, "p": "q"}, {"s": float("nan"), "r": 1.0, "p": "q"}, {"r": 1.0, "p": "q"}]
    (tmp_path / "dump.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = Source()
    found = [row for _, row in read(tmp_path, {"step": "s", "reward": "r", "prompt": "p"}, source)]
    assert [row.step for row in found] == [0] * 4 + [1] * 4
    assert list(source.left_out.values()) == [(3, f"{tmp_path}/dump.jsonl:9")]


def test_a_wrong_type_is_a_missing_value_and_the_report_says_so():
    source = Source()
    row = make_row(
        {"step": 3, "reward": "1", "length": 2.0, "cut": 1, "logp": [0.0, None], "version": ["x", "4", 7]},
        source,
        "f:1",
    )
    assert (row.step, row.reward, row.length, row.cut, row.logp, row.version) == (3, None, 2, None, None, 4)
    assert source.left_out == {
        "values of reward, not a number": (1, "f:1"),
        "values of cut, not true or false": (1, "f:1"),
    }


@pytest.mark.parametrize("value", ["²", "7" * 5000, 2**70, 1.5, float("inf"), True, [1], "", "1e3", "0x1"])
def test_a_step_is_a_whole_number_or_its_record_is_left_out(value):
    assert whole(value) is None
    with pytest.raises(ValueError, match="step"):
        make_row({"step": value}, Source(), "f:1")


@pytest.mark.parametrize("value", [float("nan"), None])
def test_nothing_measured_is_missing_in_every_column(value):
    for name in FORMATS["columns"][2]:
        assert typed(name, value) is None


def test_a_metric_of_a_trainer_that_is_not_a_number_is_not_taken(tmp_path):
    state = {"log_history": [{"step": 7, "loss": "x", "kl": 0.5}, {"step": "²", "kl": 1}, None]}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    source = Source()
    assert not list(read(tmp_path, {}, source))
    assert source.metrics == {7: {"kl": 0.5}}
    assert [count for count, _ in source.left_out.values()] == [2]
