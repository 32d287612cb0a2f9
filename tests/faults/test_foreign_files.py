"""Every file that may come from elsewhere, in five hundred mutations: a result or a sentence, in time, and no escape.

`pytest -q -s tests/faults/test_foreign_files.py` prints what each kind of file ended in; PMDKIT_FAULTS_SCALE=20 makes
ten thousand of them.
"""

import faulthandler
import json
import os
import re
import resource
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from random import Random

import pytest

from pmdkit import recording, train
from pmdkit.cli import explain_error, main
from pmdkit.envs.math.datasets import MathFile
from pmdkit.llm import evaluate
from pmdkit.llm.model import load_model
from pmdkit.llm.prompts import Encoder
from pmdkit.observe import checkpoint, files
from pmdkit.observe.run_folder import RunFolder
from pmdkit.sweeps import record

from . import foreign
from .bad_input import JSONL, PARQUET
from .harness import scaled
from .test_security_text import raw

SECONDS = 240.0
"A mutation takes 0.1 s on average. A crowded machine is slow, and a pipe or a loop waits for ever."
MEMORY = 3 * 2**30
"Bytes that a command may take beyond what the tests hold already."
FINE = {0, 2, 3, 5}
TINY = Path(__file__).parents[1] / "llm" / "tiny.toml"


class TooLate(BaseException):
    """The time is over; not an Exception, which the command would explain."""


@contextmanager
def limits():
    """An alarm that ends what waits or loops, and a limit on memory."""

    def ring(*_):
        raise TooLate

    before = signal.signal(signal.SIGALRM, ring)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, hard))
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    faulthandler.dump_traceback_later(
        4 * SECONDS, exit=True, file=sys.__stderr__
    )  # a run sets an alarm of its own in place of ours
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@dataclass
class Ending:
    """How a command or a reader ended."""

    code: int
    text: str
    seconds: float


def end_of(work) -> Ending:
    """What came of it: an exit code, also of a function that a command calls, and all that it printed."""
    out, begun, code = StringIO(), time.monotonic(), 0
    with redirect_stdout(out), redirect_stderr(out):
        try:
            with limits():
                work()
        except SystemExit as leave:
            code = int(leave.code or 0)
        except TooLate:
            code = -1
            traceback.print_exc()
        except Exception as problem:
            sentence, code = explain_error(problem)
            if code not in FINE:
                traceback.print_exc()
            print(sentence.encode("unicode_escape").decode())  # as `fail` prints it
    return Ending(code, out.getvalue(), time.monotonic() - begun)


def command(*arguments):
    """Work for `end_of`: a command line."""
    return lambda: main([str(argument) for argument in arguments])


class Shelf:
    """What is mutated, made once: runs of two tiers, a record of a sweep, a model, data, a recipe."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.folder, self.model = folder, model
        options = {"env.arms": 4, "run.record": 1, "run.checkpoint_every": 1}
        for name, objective in (("a", "pmd-mean"), ("b", "rloo")):
            train(objective, out=folder / "runs" / name, steps=2, options=options)
        toy = {"run.record": 1, "model.dimension": 16}
        train("pmd-mean", "toy", "copy", out=folder / "toy", steps=1, prompts=2, group=2, ministeps=2, options=toy)
        entries = [
            {"name": name, "state": "finished", **record.digest(RunFolder(folder / "runs" / name))} for name in "ab"
        ]
        (folder / "sweep.json").write_text(json.dumps({"format": 1, "config": {}, "runs": entries}))
        (folder / "mine.toml").write_text(
            '[env]\nkind = "needle"\narms = 4\n[objective]\nname = "pmd-mean"\ntau = 0.5\n[schedule]\nsteps = 2\n'
            "prompts = 2\ngroup = 2\n[run]\nrecord = 1\nkeep = 3\n"
        )
        shutil.copyfile(TINY, folder / "recipe.toml")
        (folder / "plan.toml").write_text(
            TINY.read_text().replace('build = "starter"', f'path = "{folder}/work/model"')
        )
        (folder / "rows.jsonl").write_bytes(JSONL)
        (folder / "rows.json").write_text(json.dumps([json.loads(line) for line in JSONL.splitlines()]))
        (folder / "rows.parquet").write_bytes(PARQUET)
        verdict = {"correct": True, "extracted": "1", "path": "integer", "reason": "equal", "value": 1.0}
        answers = [
            {"id": "p", "k": k, "response": "Answer: 1", "ended": True, "tokens": 3, "verdict": verdict} for k in (0, 1)
        ]
        (folder / "responses.jsonl").write_text("".join(json.dumps(answer) + "\n" for answer in answers))
        self.others = tuple(sorted(folder.glob("runs/a/*.json*")))

    def fresh(self, name: str) -> Path:
        """A copy of something of the shelf to change."""
        place = self.folder / "work" / Path(name).name
        if place.parent.exists():
            shutil.rmtree(place.parent)
        place.parent.mkdir()
        source = self.model if name == "model" else self.folder / name
        if source.is_dir():
            shutil.copytree(source, place)
        else:
            shutil.copyfile(source, place)
        return place


@pytest.fixture(scope="module")
def shelf(tmp_path_factory, model_folder):
    return Shelf(tmp_path_factory.mktemp("shelf"), model_folder)


def signed(folder: Path, name: str) -> None:
    """Write the manifest of a checkpoint for the file as it is now: what somebody who forges it would do."""
    path = folder / "manifest.json"
    stored = json.loads(path.read_text())
    data = (folder / name).read_bytes()
    stored["sha256"][name], stored["bytes"][name] = checkpoint.sha256_of(data), len(data)
    del stored["digest"]
    path.write_bytes(files.encode({**stored, "digest": checkpoint.sha256_of(files.encode(stored))}))


def forged_recording(rng: Random, data: bytes) -> bytes:
    """Another story in a recording, with its checksum, or another header around it."""
    if rng.random() < 0.3:
        return foreign.mutate_safetensors(rng, data)
    from safetensors.numpy import load, save

    stored = load(data)
    length = int.from_bytes(data[:8], "little")
    about = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["pmdkit"])["about"]
    if rng.random() < 0.3:
        name = rng.choice(sorted(stored))
        stored[name] = rng.choice((stored[name][:-1], stored[name] * 100, -stored[name].astype("int32")))
    else:
        about = foreign.mutate_value(rng, about)
    try:
        text = recording.to_json(about)
    except (ValueError, RecursionError):  # what no checksum is computed of
        text = "{}"
    header = f'{{"about":{text},"sha256":"{recording.checksum(text, stored)}"}}'
    return save(stored, {"pmdkit": header})


# One function for each kind of file: it changes a fresh copy and returns what is done with it.


def of_a_run(name):
    """A file of a run folder, read by four commands."""

    def prepare(mutate, rng, shelf):
        runs = shelf.fresh("runs")
        mutate(rng, runs / "b" / name, others=shelf.others)
        steps = rng.choice((2, 3))
        return rng.choice(
            (
                command("compare", runs),
                command("compare", runs, "--metric", "pass_rate_mean", "--json"),
                command("eval", runs / "b", "--k", 2, "--problems", 2),
                command("bandit", "needle", "--out", runs / "b", "--resume", "--steps", steps),
                command("replay", runs / "b"),
            )
        )

    return prepare


def of_a_checkpoint(name, content=foreign.mutate_json, forged=0.8):
    """A file of a checkpoint; with a manifest that was made to fit, but for a share of the cases."""

    def prepare(mutate, rng, shelf):
        run = shelf.fresh("runs") / "a"
        for path in run.glob("checkpoints/step-*"):
            how = mutate(rng, path / name, content, shelf.others)
            if how == "values" and name != "manifest.json" and rng.random() < forged:
                signed(path, name)
        if rng.random() < 0.2:
            return command("bandit", "needle", "--out", run, "--resume", "--steps", 3)
        return command("eval", run, "--k", 2, "--problems", 2)

    return prepare


def of_a_recording(where):
    def prepare(mutate, rng, shelf):
        run = shelf.fresh(where)
        path = max(run.glob("rollouts/*.safetensors"))
        mutate(rng, path, forged_recording, shelf.others)
        more = rng.choice(([], ["--row", 1], ["--objective", "rloo"], ["--json"]))
        return command("replay", run, *more)

    return prepare


def of_a_model(name):
    """A file of a model, read by the plan; sometimes loaded."""

    def prepare(mutate, rng, shelf):
        model = shelf.fresh("model")
        mutate(rng, model / name, others=shelf.others)
        return command("plan", shelf.folder / "plan.toml", "--gpus", "8xH100") if rng.random() < 0.5 else dry_run(shelf)

    return prepare


def dry_run(shelf):
    return command("llm", shelf.folder / "plan.toml", "--dry-run")


def of_a_loaded_model(name):
    def prepare(mutate, rng, shelf):
        model = shelf.fresh("model")
        content = foreign.mutate_safetensors if name.endswith("safetensors") else foreign.mutate_json
        if name.endswith("jinja"):
            content = another_template
        mutate(rng, model / name, content, shelf.others)
        return lambda: Encoder(load_model(str(model))[1])

    return prepare


def another_template(rng, data):
    """A program for Jinja that does not end, takes the memory, fails, or steers the terminal."""
    return rng.choice(TEMPLATES).encode()


TEMPLATES = [
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "{{ 'a' * 10 ** 10 }}",
    "{% set n = namespace(a='aa') %}{% for i in range(60) %}{% set n.a = n.a + n.a %}{% endfor %}{{ n.a }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{{ raise_exception('\x1b[2J gone') }}",
    "{% if %}",
    "{{ ''.__class__.__mro__ }}",
    "{{ messages[0]['content'] }}{{ messages[0]['content'] }}",
    "{{ messages[0].content }}\x1b]0;owned\x07",
    "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}",
    "{{ nothing.at.all }}",
    "",
]


def of_a_spec(name, *verb):
    def prepare(mutate, rng, shelf):
        spec = shelf.fresh(name)
        mutate(rng, spec, foreign.mutate_toml, shelf.others)
        return command(*verb, spec, "--dry-run")

    return prepare


def of_data(name):
    def prepare(mutate, rng, shelf):
        rows = shelf.fresh(name)
        content = foreign.mutate_bytes if name.endswith("parquet") else foreign.mutate_json
        mutate(rng, rows, content, shelf.others)
        return lambda: MathFile(str(rows), drop_bad_rows=rng.random() < 0.5).build()

    return prepare


def of_a_sweep(mutate, rng, shelf):
    path = shelf.fresh("sweep.json")
    mutate(rng, path, others=shelf.others)
    return command("compare", path, *rng.choice(([], ["--json"], ["--by", "objective"])))


def of_responses(mutate, rng, shelf):
    path = shelf.fresh("responses.jsonl")
    mutate(rng, path, others=shelf.others)
    return lambda: evaluate.read_record(path, 2)


KINDS = {  # kind of file, mutations in `make faults`
    "config.json": (of_a_run("config.json"), 50),
    "metrics.jsonl": (of_a_run("metrics.jsonl"), 50),
    "summary.json": (of_a_run("summary.json"), 30),
    "inputs.json": (of_a_run("inputs.json"), 20),
    "env.json": (of_a_run("env.json"), 5),
    "sweep.json": (of_a_sweep, 50),
    "manifest.json": (of_a_checkpoint("manifest.json"), 25),
    "state.json": (of_a_checkpoint("state.json", forged=0), 25),
    "model.safetensors of a checkpoint": (of_a_checkpoint("model.safetensors", foreign.mutate_safetensors), 20),
    "recording of a bandit": (of_a_recording("runs/a"), 30),
    "recording of tokens": (of_a_recording("toy"), 20),
    "responses.jsonl": (of_responses, 30),
    "spec": (of_a_spec("mine.toml", "bandit"), 30),
    "recipe": (of_a_spec("recipe.toml", "llm"), 10),
    "rows.jsonl": (of_data("rows.jsonl"), 30),
    "rows.json": (of_data("rows.json"), 20),
    "rows.parquet": (of_data("rows.parquet"), 15),
    "config.json of a model": (of_a_model("config.json"), 20),
    "config.json of a loaded model": (of_a_loaded_model("config.json"), 6),
    "tokenizer.json": (of_a_loaded_model("tokenizer.json"), 4),
    "tokenizer_config.json": (of_a_loaded_model("tokenizer_config.json"), 3),
    "generation_config.json": (of_a_loaded_model("generation_config.json"), 3),
    "chat_template.jinja": (of_a_loaded_model("chat_template.jinja"), 2),
    "model.safetensors": (of_a_loaded_model("model.safetensors"), 2),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_foreign_file_ends_in_a_result_or_a_sentence(kind, shelf, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    fuzz(kind, *KINDS[kind], shelf)


def test_a_state_that_somebody_forged_ends_in_a_sentence(shelf):
    """Its sums find damage, and no intent: whoever changes state.json writes the manifest anew."""
    fuzz("state.json, forged", of_a_checkpoint("state.json", forged=1), 25, shelf)


def fuzz(kind, prepare, share, shelf):
    """So many mutations of a kind of file, and what they ended in."""
    wrong, ended, begun = [], Counter(), time.monotonic()
    for number in range(scaled(share)):
        rng = Random(f"{kind} {number}")
        work = prepare(foreign.mutate, rng, shelf)
        ending = end_of(work)
        ended[ending.code] += 1
        if os.environ.get("PMDKIT_FAULTS_SHOW"):
            print(f"{number}: {ending.code} {ending.seconds:.1f} s {ending.text[-300:]!r}")
        trouble = [
            "the exit code" if ending.code not in FINE else "",
            "a traceback" if re.search("Traceback|a bug, most likely", ending.text) else "",
            f"raw {raw(ending.text)!r}" if raw(ending.text) else "",
        ]
        if any(trouble):
            wrong.append(f"{kind} {number}: {', '.join(filter(None, trouble))}: {ending.code} {ending.text[-1500:]}")
    table = ", ".join(f"{count} times {code}" for code, count in sorted(ended.items()))
    print(f"\n{kind}: {sum(ended.values())} mutations ended in {table}; {time.monotonic() - begun:.0f} s")
    assert not wrong, f"{len(wrong)} of {sum(ended.values())}\n" + "\n".join(wrong[:10])


def unchanged(rng, path, content=None, others=()):
    """In place of a mutation."""
    return "nothing"


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_file_unchanged_is_read(kind, shelf):
    """What is mutated is whole: otherwise every mutation would end in a sentence for another reason."""
    for number in range(5):
        ending = end_of(KINDS[kind][0](unchanged, Random(number), shelf))
        assert ending.code == 0, ending.text


def test_there_are_five_hundred():
    assert sum(share for _, share in KINDS.values()) == 500
    assert os.path.exists(TINY)
