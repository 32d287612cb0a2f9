"""Files from elsewhere: whatever is in them, a command ends with a documented exit code and one line, and in time.

Each kind of file is read by the commands that read it, with a hundred changes: of values inside a structure that stays
whole, and of bytes. Unchanged, the same commands end with 0. What is no file at all is in tests/test_untrusted.py.
"""

import json
import shutil
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from random import Random

import pytest

from pmdkit import train
from pmdkit.cli import explain_error, main
from pmdkit.envs.math.readers import MathFile
from pmdkit.llm.model import load_model
from pmdkit.llm.prompts import Encoder
from tests.nightly import mostly_nightly

EVIL = "\x1b]0;owned\x07\x1b[2J\u202e\ud800\x7f[red]no[/]\r"
VALUES = [
    None, True, 0, -1, 3, 7.5, 1e300, 2**53 + 1, 2**64, 10**400, "", "x", "nan", "../../x", "/dev/zero", "a" * 3000,
    EVIL,
    [], {}, [[]], [1, "a"], {"a": 1},
]  # fmt: skip
RAW = [
    "NaN", "1e999", "9" * 5000, "[" * 100_000, '{"a":' * 5_000, "-", "", '{"step": 1, "step": 2}', "\0\0", "\xff\xfe",
]  # fmt: skip


def change_value(rng, value):
    """Put something else in place of one value, or leave a key out."""
    homes, rest = [], [value]
    while rest:
        home = rest.pop()
        if isinstance(home, dict | list) and home:
            homes.append(home)
            rest += list(home.values() if isinstance(home, dict) else home)[:50]
    if not homes:
        return rng.choice(VALUES)
    home = rng.choice(homes)
    key = rng.choice(list(home)) if isinstance(home, dict) else rng.randrange(len(home))
    if isinstance(home, dict) and rng.random() < 0.2:
        del home[key]
    else:
        home[key] = rng.choice(VALUES)
    return value


def change_json(rng, data):
    """Another value in JSON, or in a line of JSON Lines; or text that is no JSON."""
    lines = data.splitlines()
    at = rng.randrange(len(lines)) if len(lines) > 1 and data[:1] == b"{" and lines[0][-1:] == b"}" else None
    if rng.random() < 0.2:
        text = rng.choice(RAW).encode("latin-1")
    else:
        text = json.dumps(change_value(rng, json.loads(data if at is None else lines[at]))).encode()
    return text if at is None else b"\n".join([*lines[:at], text, *lines[at + 1 :]]) + b"\n"


def change_bytes(rng, data):
    """Damage without a thought for what the bytes mean."""
    at = rng.randrange(len(data))
    return rng.choice(
        (
            data[:at], data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :], data + data,
            data[:at] + rng.randbytes(40) + data[at:], data[:at] + data[at + 5 :], b"\xef\xbb\xbf" + data, b"", b"null",
            data[:at] + EVIL.encode("utf-8", "surrogatepass") + data[at:], b"\x1f\x8b\x08", bytes(1000),
            (2**62).to_bytes(8, "little") + data[8:],
        )
    )  # fmt: skip


EVAL = ["eval", "{}/run", "--k", "2", "--problems", "2"]
RESUME = ["bandit", "needle", "--out", "{}/run", "--resume", "--steps", "3"]
COMPARE = ["compare", "{}/run"]
STEP = "run/checkpoints/step-2/"
KINDS = {  # file below the place: how its content changes, the commands that read it, the exit codes they may have
    "run/config.json": (change_json, [EVAL, RESUME, COMPARE], {0, 2, 3, 5}),
    "run/metrics.jsonl": (change_json, [RESUME, COMPARE], {0, 2, 5}),
    "run/summary.json": (change_json, [COMPARE], {0, 2}),
    "run/inputs.json": (change_json, [RESUME], {0, 2, 5}),
    STEP + "manifest.json": (change_json, [EVAL, RESUME], {0, 5}),
    STEP + "state.json": (change_json, [EVAL, RESUME], {0, 2, 5}),
    STEP + "model.safetensors": (change_bytes, [EVAL, RESUME], {0, 2, 5}),
    "mine.toml": (change_bytes, [["bandit", "{}/mine.toml", "--dry-run"]], {0, 2, 3}),
    "rows.jsonl": (change_json, ["rows"], {0, 2}),
    "model/config.json": (change_json, ["model"], {0, 2, 3}),
    "model/tokenizer.json": (change_bytes, ["model"], {0, 2}),
    "model/tokenizer_config.json": (change_json, ["model"], {0, 2}),
    "model/model.safetensors": (change_bytes, ["model"], {0, 2}),
}
SIZES = ("hidden_size", "layers", "layer_types", "heads", "head_dim", "vocab_size", "intermediate", "position")
"In a model's configuration: whoever loads somebody's model pays for its size, as in transformers."


@pytest.fixture(scope="module")
def shelf(tmp_path_factory, model_folder):
    """What is changed, made once."""
    place = tmp_path_factory.mktemp("shelf")
    train(out=place / "run", steps=2, options={"env.arms": 4})
    (place / "run" / "inputs.json").write_text('{"digests": {}, "files": {}, "changes": []}')  # of a run with files
    shutil.copytree(model_folder, place / "model")
    rows = [{"problem": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(6)]
    (place / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (place / "mine.toml").write_text(
        '[env]\nkind = "needle"\narms = 4\n[objective]\nname = "pmd-mean"\ntau = 0.5\n[schedule]\nsteps = 2\n'
    )
    return place


def ending(command, place):
    """The exit code of a command, or of what it calls, and all that it printed."""
    out, code = StringIO(), 0
    with redirect_stdout(out), redirect_stderr(out):
        try:
            if command == "rows":
                MathFile(str(place / "rows.jsonl")).build()
            elif command == "model":
                Encoder(load_model(str(place / "model"))[1])
            else:
                main([part.format(place) for part in command])
        except SystemExit as leave:
            code = int(leave.code or 0)
        except Exception as problem:
            sentence, code = explain_error(problem)
            print(sentence.encode("unicode_escape").decode())
    return code, out.getvalue()


@pytest.mark.parametrize("changes", mostly_nightly([25, 100], 25))
@pytest.mark.parametrize("kind", KINDS)
def test_a_foreign_file_ends_with_a_documented_exit_code(kind, changes, shelf, tmp_path):
    change, commands, codes = KINDS[kind]
    count = changes // (8 if kind.startswith("model/") else len(commands))
    for command in commands:
        for number in range(count):
            rng, place = Random(f"{kind} {number}"), tmp_path / "work"
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(shelf, place)
            path = place / kind
            if number:  # the first is unchanged
                data = path.read_bytes()
                changed = (change if rng.random() < 0.8 else change_bytes)(rng, data)
                if kind == "model/config.json" and other_sizes(data, changed):
                    continue
                path.write_bytes(changed)
            code, told = ending(command, place)
            assert code in codes, (number, command, told[-2000:])
            assert number or code == 0, told
            assert "Traceback" not in told
            assert "a bug, most likely" not in told, (number, command, told)
            assert not {char for char in told if not (char.isprintable() or char in "\n\t")}, (number, command)


def other_sizes(data, changed):
    """Whether a configuration of a model is still one, and asks for another amount of memory."""
    try:
        old, new = json.loads(data), json.loads(changed)
    except (ValueError, RecursionError):
        return False
    return isinstance(new, dict) and any(old.get(key) != new.get(key) for key in old if any(s in key for s in SIZES))
