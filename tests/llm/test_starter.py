"""The starter: real classes, its own tokenizer, a teacher as sloppy as it says, and a phase 0 that can be killed."""

import re

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from pmdkit.envs.math.problem import Problem
from pmdkit.envs.math.synthetic import Arithmetic
from pmdkit.llm.export import export_starter
from pmdkit.llm.prompts import Encoder
from pmdkit.llm.starter import warm_start as phase_0
from pmdkit.llm.starter.model import build
from pmdkit.llm.starter.tokenizer import train_tokenizer
from pmdkit.llm.starter.vocabulary import HIGHEST, LOWEST, Teacher
from pmdkit.llm.starter.warm_start import warm_start
from pmdkit.observe.checkpoint import steps
from pmdkit.randomness import generator
from pmdkit.specs.toy import WarmStartTable
from strict_answers import verify

OPTIONS = WarmStartTable(pass_rate=0.3, max_steps=12, look=2, batch=4, lr=4e-3)


@pytest.fixture(scope="module")
def problems():
    return Arithmetic().build()


@pytest.fixture(scope="module")
def tokenizer(problems):
    return train_tokenizer(problems)


@pytest.mark.slow
@pytest.mark.parametrize("target", [LOWEST, 0.3, HIGHEST])
def test_the_teacher_is_as_sloppy_as_it_says(problems, target):
    """Shares of right responses, reasoning and slips, each within 4 standard errors of its probability."""
    teacher, count = Teacher.for_pupil(target, 4), 3000
    right, reasoned, slips = 0, 0, []
    for number in range(count):
        problem = problems.problem(number)
        response = teacher.respond(problem.problem, generator(1, number))
        right += response.splitlines()[-1] == f"Answer: {problem.answer}"
        chain, _, _ = response.rpartition("\n")
        reasoned += bool(chain)
        slips += [eval_sum(step) for step in chain.split(", ")] if chain else []
    assert abs(right / count - 1.5 * target) < 4 * 0.5 / count**0.5
    assert abs(reasoned / count - teacher.steps) < 4 * 0.5 / count**0.5
    wrong = np.mean([not good for good in slips])
    assert abs(wrong - teacher.slip) < 4 * 0.5 / len(slips) ** 0.5


def eval_sum(step):
    """Whether a step such as 8+2=10 is right."""
    left, right, result = map(int, re.fullmatch(r"(\d+)\+(\d+)=(\d+)", step).groups())
    return left + right == result


def test_an_honest_teacher_satisfies_the_verifier(problems):
    teacher = Teacher(slip=0.0, guessed=1.0)
    for number in range(200):
        problem = problems.problem(number)
        verdict = verify(teacher.respond(problem.problem, generator(3, number)), problem.answer)
        assert (verdict.correct, verdict.path) == (True, "integer")


def taught(problems, tokenizer, folder=None, rates=(0.0,) * 5 + (0.5,), seed=0):
    """Weights and notes after a phase 0 whose pass rate is measured as `rates`."""
    model, said, measured = build("starter", tokenizer, 1), [], iter(rates)
    encode = Encoder(tokenizer).encode
    reached = warm_start(model, tokenizer, problems, encode, OPTIONS, seed, lambda: next(measured), said.append, folder)
    return {name: value.detach().clone() for name, value in model.named_parameters()}, said, reached


@pytest.mark.slow
def test_phase_0_killed_and_taken_up_again_ends_on_the_same_bits(problems, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(phase_0, "SAVE", 4)
    whole, said, reached = taught(problems, tokenizer, tmp_path / "whole")
    assert reached == 0.5
    assert said[-1] == "warm start: pass rate 0.500 after 10 supervised steps"
    assert steps(tmp_path / "whole") == [8]
    with pytest.raises(StopIteration):  # the measurement after step 6 never comes: killed
        taught(problems, tokenizer, tmp_path / "cut", rates=(0.0,) * 3)
    assert steps(tmp_path / "cut") == [4]
    resumed, said, _ = taught(problems, tokenizer, tmp_path / "cut", rates=(0.0, 0.0, 0.5))
    assert said[0] == "warm start: continuing after 4 supervised steps"
    assert whole.keys() == resumed.keys()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    unsaved, _, _ = taught(problems, tokenizer)
    assert all(torch.equal(whole[name], unsaved[name]) for name in whole)
    other, _, _ = taught(problems, tokenizer, seed=1)
    assert not all(torch.equal(whole[name], other[name]) for name in whole)


@pytest.mark.slow
def test_the_folder_loads_with_the_auto_classes(tmp_path):
    folder = tmp_path / "model"
    told = export_starter(folder, "starter", 3, 0, print)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    expected = build("starter", tokenizer, 3).state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in model.state_dict().items())
    assert told["weights"] == model.num_parameters()
    assert 0 <= told["pass_rate"] < 0.1
    text = "Ana has 3 apples, buys 5, finds 2 and gets 7. How many apples now?"
    ids = Encoder(tokenizer).encode(Problem("ana", text))
    out = model.generate(torch.tensor([ids]), max_new_tokens=4, do_sample=False)
    assert out.shape[1] > len(ids)
    assert (folder / "generation_config.json").exists()
