"""What a run is made of besides its options: other rows, weights, tokenizers or templates are another run."""

import json
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmdkit import train
from pmdkit.errors import ResumeRefused
from pmdkit.fit import Display
from pmdkit.observe import input_digests
from pmdkit.observe.checkpoint import read_manifest
from pmdkit.observe.run_folder import RunFolder
from pmdkit.plugins import code_inputs

ASKED = [{"problem": f"What is {n} plus 2?", "answer": str(n + 2)} for n in range(4)]
ROWS = [{"problem": f"What is {n} plus 1?", "answer": str(n + 1)} for n in range(24)]
RECIPE = """
[env]
kind = "file"
path = "rows.jsonl"
held_out = 4
[model]
path = "model"
[objective]
name = "pmd-mean"
tau = 0.05
[schedule]
steps = 1
prompts = 2
group = 2
lr = 1e-3
[rollout]
width = 4
[evaluation]
data = "asked.jsonl"
problems = 2
"""


class Watcher(Display):
    """Keeps what a person is warned of."""

    def __init__(self):
        self.warnings = []

    def warn(self, sentence):
        self.warnings.append(sentence)


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="module")
def made(model_folder, tmp_path_factory):
    """A folder with model, data, recipe and a run of one step from them."""
    folder = tmp_path_factory.mktemp("inputs")
    shutil.copytree(model_folder, folder / "model")
    write_rows(folder / "rows.jsonl", ROWS)
    write_rows(folder / "asked.jsonl", ASKED[:2])
    (folder / "recipe.toml").write_text(RECIPE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        train("pmd-mean", "llm", "recipe.toml", out="run")
    return folder


@pytest.fixture
def place(made, tmp_path, monkeypatch):
    shutil.copytree(made, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def resume(display=None, **more):
    return train("pmd-mean", "llm", "recipe.toml", out="run", resume=True, steps=2, display=display, **more)


def other_rows(place):
    write_rows(place / "rows.jsonl", [row | {"answer": "7"} for row in ROWS])


def other_weights(place):
    from safetensors.torch import load_file, save_file

    file = place / "model" / "model.safetensors"
    save_file({name: tensor + 1 for name, tensor in load_file(file).items()}, file, {"format": "pt"})


def other_tokenizer(place):
    file = place / "model" / "tokenizer.json"
    words = json.loads(file.read_text())
    words["added_tokens"].append(words["added_tokens"][-1] | {"id": 10_000, "content": "<another>"})
    file.write_text(json.dumps(words))


CHANGES = {
    "training rows": other_rows,
    "evaluation rows": lambda place: write_rows(place / "asked.jsonl", ASKED[2:]),
    "weights": other_weights,
    "tokenizer": other_tokenizer,
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_resume_on_another_input_is_refused_and_named(name, place):
    CHANGES[name](place)
    before = {path: path.read_bytes() for path in (place / "run").rglob("*") if path.is_file()}
    with pytest.raises(ResumeRefused, match=rf"started with other inputs: .*{name} \(was [0-9a-f]+, is [0-9a-f]+\)"):
        resume()
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.slow
def test_an_accepted_change_is_written_down(place):
    other_rows(place)
    watcher = Watcher()
    run = resume(watcher, accept_changes=True)
    record = json.loads((place / "run" / "inputs.json").read_text())
    assert [change["input"] for change in record["changes"]] == ["file rows.jsonl", "training rows"]
    assert [sentence.split(" changed")[0] for sentence in watcher.warnings][:2] == ["file rows.jsonl", "training rows"]
    assert {change["after_step"] for change in record["changes"]} == {1}
    assert len(run.metrics) == 2
    manifest = read_manifest(place / "run" / "checkpoints" / "step-2")
    assert manifest.inputs["training rows"] == record["digests"]["training rows"]
    train("pmd-mean", "llm", "recipe.toml", out="run", resume=True, steps=3)  # they are the run's inputs from now on


@pytest.mark.slow
def test_the_same_inputs_are_no_change_and_weights_are_read_once(place, monkeypatch):
    hashed = []
    real = input_digests.sha256_of
    monkeypatch.setattr(input_digests, "sha256_of", lambda path: hashed.append(path.name) or real(path))
    record = json.loads((place / "run" / "inputs.json").read_text())
    kept = record["files"]["weights"]["model/model.safetensors"]
    assert set(kept) == {"bytes", "mtime_ns", "inode", "sha256"}
    watcher = Watcher()
    resume(watcher)  # a copy of the folder: another inode, so the file is read again, and is the same
    assert hashed.count("model.safetensors") == 1
    assert not watcher.warnings
    train("pmd-mean", "llm", "recipe.toml", out="run", resume=True, steps=3)
    assert hashed.count("model.safetensors") == 1


def test_a_lost_record_is_in_the_checkpoint(place):
    RunFolder(place / "run").inputs.unlink()
    other_rows(place)
    with pytest.raises(ResumeRefused, match="training rows"):
        resume()


def test_an_input_that_is_missing_once_is_compared_when_it_is_back(tmp_path):
    """The first resume is without an input; the next one has another in its place."""
    folder = RunFolder(tmp_path)
    input_digests.check_inputs(folder, {"rows": "a" * 64, "weights": "b" * 64}, False, print)
    folder.begin({"tier": "bandit"})
    input_digests.check_inputs(folder, {"rows": "a" * 64}, False, print)
    with pytest.raises(ResumeRefused, match="weights"):
        input_digests.check_inputs(folder, {"rows": "a" * 64, "weights": "c" * 64}, False, print)
    input_digests.check_inputs(folder, {"rows": "a" * 64, "weights": "b" * 64}, False, print)


def test_a_file_of_an_environment_is_an_input(tmp_path, monkeypatch):
    """Whatever the tier: an option of [env] that is a file is one."""
    (tmp_path / "data.csv").write_text("1")
    record = {"env": {"kind": "mine", "path": "data.csv", "arms": 3, "name": "no file"}}
    first = code_inputs(record)
    (tmp_path / "data.csv").write_text("2")
    second = code_inputs(record)
    assert list(first) == list(second) == ["file data.csv"]
    assert input_digests.changed_inputs(first, second) == ["file data.csv"]


@given(st.lists(st.binary(max_size=4), max_size=4), st.lists(st.binary(max_size=4), max_size=4))
def test_a_digest_is_of_the_parts(one, other):
    assert (input_digests.digest(one) == input_digests.digest(other)) == (one == other)
