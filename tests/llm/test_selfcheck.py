"""The field test passes on a machine that works, and names the step that does not."""

from pathlib import Path

import pytest
import torch

from pmdkit.errors import EnvironmentLacks
from pmdkit.llm.engines.transformers import TransformersEngine
from pmdkit.llm.learner import CausalLearner
from pmdkit.llm.selfcheck import SelfCheck
from pmdkit.observe import checkpoint
from pmdkit.training import plan

pytestmark = pytest.mark.slow  # a whole field test each

TINY = str(Path(__file__).with_name("tiny.toml"))
STEPS = ["load", "generate", "verify", "update", "publish", "resume", "evaluate"]


def checked(folder, **options):
    spec, objective = plan("llm", TINY, options)
    test = SelfCheck(spec, objective, folder)
    told = []
    checks = test(told.append)
    assert told == checks
    return test, checks


def test_every_step_passes_and_the_row_says_what_was_measured(tmp_path):
    test, checks = checked(tmp_path)
    assert [check.name for check in checks if check.passed] == STEPS
    row = test.row(checks)
    assert "7 of 7 checks" in row
    assert f"{test.figures['weights']:,} weights" in row
    assert row.count("|") == 5
    assert (tmp_path / "evaluation.jsonl").read_text().count("\n") == 16


def shifted(real):
    def generate(*given, **named):
        drawn = real(*given, **named)
        return type(drawn)(drawn.tokens, drawn.logp - 0.1, drawn.mask, drawn.ended, drawn.version)

    return generate


def out_of_memory(*given):
    raise EnvironmentLacks("out of memory in the update")


def forgets(self, weights, version):
    self.version = version


@pytest.mark.parametrize(
    ("name", "home", "what", "broken"),
    [
        ("generate", TransformersEngine, "generate", shifted),
        ("update", CausalLearner, "update", out_of_memory),
        ("update", CausalLearner, "optimizer_step", lambda self, loss, signal: 1.0),
        ("resume", checkpoint, "load_step", lambda *given: {"model": {}, "optimizer": {}}),
    ],
)
def test_the_step_that_fails_is_named_and_the_rest_is_not_run(name, home, what, broken, tmp_path, monkeypatch):
    monkeypatch.setattr(home, what, broken(getattr(home, what)) if broken is shifted else broken)
    _, checks = checked(tmp_path)
    assert [check.name for check in checks] == STEPS[: STEPS.index(name) + 1]
    assert [check.passed for check in checks] == [True] * STEPS.index(name) + [False]


def test_an_engine_that_keeps_old_weights_is_seen(tmp_path, monkeypatch):
    """In bfloat16 the engine has a copy; one that is not brought up to date differs from the trainer after a step."""
    monkeypatch.setattr(TransformersEngine, "publish", forgets)
    options = {"model.dtype": "bfloat16", "schedule.lr": 0.1}
    _, checks = checked(tmp_path, **options)
    assert checks[-1].name == "publish"
    assert not checks[-1].passed


def test_bfloat16_passes_too(tmp_path):
    _, checks = checked(tmp_path, **{"model.dtype": "bfloat16"})
    assert [check.name for check in checks if check.passed] == STEPS
    assert torch.get_default_dtype() == torch.float32
