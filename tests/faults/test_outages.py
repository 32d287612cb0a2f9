"""A verifier that fails makes no update: exit 7, the last checkpoint whole, and a resumed run on the reference bits."""

import hashlib
import re

import pytest

from pmdkit.config import LanguageModelTable
from pmdkit.llm import backend
from pmdkit.llm.backend import build_model

from . import outages
from .engines_run import ENV, SMALL, Runner
from .outages import at_the_second_reward, inside, no_workers_left, set_up

OPTIONS = {
    **SMALL,
    "schedule.prompts": 1,
    "schedule.ministeps": 1,
    "schedule.group": 2,
    "evaluation.problems": 1,
    "model.build": None,
    "reward.seconds": 0.3,
    "reward.memory_mb": 256,
    "run.keep": 9,
}
# name -> how it begins, what is said
OUTAGES = {
    "raises": (inside("raise"), "KeyError: 'no such thing'"),
    "NaN": (inside("nan"), "the grader returned nan; expected a number from 0 to 1"),
    "inf": (inside("inf"), "the grader returned inf"),
    "above the range": (inside("two"), "the grader returned 2.0"),
    "text": (inside("text"), "the grader returned str"),
    "all answers run over their time": (inside("hang"), r"no answer within 0\.3 s"),
    "over the memory limit": (inside("eat"), "over its memory limit"),
    "dies at every request": (inside("die"), "the worker died"),
    "stopped at every request": (inside("stop"), r"no answer within 0\.3 s"),
    "rubbish on the pipe": (inside("rubbish"), "the worker sent nonsense: a message of impossible length"),
    "broken JSON on the pipe": (inside("no JSON"), "the worker sent nonsense"),
    "an object of other keys": (inside("no value"), "the worker sent nonsense"),
    "a forged NaN": (inside("forged NaN"), "the worker sent nonsense"),
    "its import is broken": (
        no_workers_left(inside("import")),
        "cannot start: ValueError: .*: ImportError",
    ),
    "no binary": (no_workers_left(outages.no_binary), "cannot start: .*No such file"),
    "a binary that ends": (no_workers_left(outages.binary("exit 0")), "cannot start: the worker died"),
    "a binary that hangs": (no_workers_left(outages.binary("sleep 60")), "cannot start: a worker was not ready"),
    "no fork": (no_workers_left(outages.no_fork), "cannot start: .*temporarily unavailable"),
    "killed when ready": (no_workers_left(outages.killed_as_born), "the worker died"),
    "stopped when ready": (no_workers_left(outages.stopped_as_born), r"no answer within 0\.3 s"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model whose answers end soon: every second token is an end."""
    model, tokenizer = build_model(LanguageModelTable(build="starter"), ENV, seed=0)
    model.generation_config.eos_token_id = list(range(2, model.config.vocab_size, 2))
    folder = tmp_path_factory.mktemp("model")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def runner(call, capsys, tmp_path):
    return Runner(call, capsys, tmp_path)


@pytest.fixture
def options(folder, tmp_path):
    """Of a run with the honest grader."""
    grader = tmp_path / "grader"
    grader.mkdir()
    return OPTIONS | {"model.path": str(folder), "reward.grade": f"{set_up(grader)}:grade"}


@pytest.fixture(scope="module")
def undisturbed():
    """Bits of the run that nothing disturbed, and of its first checkpoint; filled by whoever needs them first."""
    return {}


def weights(ended, step):
    """The weights of a checkpoint."""
    path = ended.folder / "checkpoints" / f"step-{step}" / "model.safetensors"
    return hashlib.sha256(path.read_bytes()).hexdigest()


def outlived(runner, options, begin, folder, code, said):
    """The run ends with this code and no update; after the outage it goes on, and ends as `whole` did."""
    with at_the_second_reward(begin, folder) as counts:
        ended = runner(options)
    assert counts == {"rewards": 2, "updates": 1, "updates after": 0}
    assert ended.code == code, ended.said
    assert re.search(said, ended.sentence), ended.sentence
    assert ended.steps == [1]
    first = weights(ended, 1)
    again = runner(options, "--resume", out=ended.folder)
    assert again.code == 0, again.said
    return first, again.bits


@pytest.mark.parametrize("name", OUTAGES)
def test_no_update_is_made_from_a_failed_verifier(name, runner, options, undisturbed, tmp_path):
    if "own" not in undisturbed:
        whole = runner(options)
        assert whole.code == 0, whole.said
        assert len({row["reward_mean"] for row in whole.rows}) > 1
        undisturbed["own"] = weights(whole, 1), whole.bits
    begin, said = OUTAGES[name]
    said = r"came to no verdict on 2 of 2 responses \(.*" + said + ".*no update was made from them"
    assert outlived(runner, options, begin, tmp_path / "grader", 7, said) == undisturbed["own"]


def test_a_journal_that_cannot_be_written_ends_the_run(runner, options, undisturbed, tmp_path):
    """Exit 1, a full disk: a verdict that is not on the disk is not used."""
    found = outlived(runner, options, outages.full_disk, tmp_path / "grader", 1, "No space left on device .*verdicts")
    assert "own" not in undisturbed or found == undisturbed["own"]


@pytest.mark.parametrize(
    ("source", "said"),
    [(outages.BROKEN, "libsymengine is missing"), (outages.WRONG, "is not 1/2: math-verify is broken")],
    ids=["import", "34 is not 34"],
)
def test_no_update_is_made_from_a_broken_math_verify(source, said, runner, options, undisturbed, tmp_path, monkeypatch):
    """Answers that only a worker can judge, right or wrong by their tokens."""
    monkeypatch.setattr(backend, "decode_response", lambda tokenizer, tokens: f"Answer: {sum(tokens) % 7}+{len(tokens)}")
    options = options | {"reward.grade": "math", "reward.seconds": 10, "reward.memory_mb": 1024}
    if "math" not in undisturbed:
        whole = runner(options)
        assert whole.code == 0, whole.said
        undisturbed["math"] = weights(whole, 1), whole.bits
    begin = no_workers_left(outages.other_math_verify(source))
    assert outlived(runner, options, begin, tmp_path / "grader", 7, said) == undisturbed["math"]
