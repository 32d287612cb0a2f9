"""Evaluation of a language model: every response kept, none drawn twice, and votes that know what an answer is."""

import dataclasses
from types import SimpleNamespace

import pytest
import torch

from pmdkit.envs.math.problem import Problem
from pmdkit.errors import ComponentDied
from pmdkit.llm import evaluate
from pmdkit.llm.callbacks.evaluation import EvaluationCallback
from pmdkit.llm.engines.base import Responses, Sampling
from pmdkit.llm.engines.distributed import DistributedEngine
from pmdkit.llm.evaluate import Answered, Evaluation, graded_draws
from pmdkit.observe.run_folder import RunFolder
from pmdkit.process_group import ProcessGroup
from pmdkit.randomness import derive
from strict_answers import Grader, Verdict


class Parrot:
    """Answers each prompt by a function of its seeds, one character per token; remembers what it was asked."""

    version = 0

    def __init__(self):
        self.asked = []

    def generate(self, prompts, group, seeds, sampling, progress=None):
        assert len(seeds) == len(prompts) * group
        self.asked.append([bytes(prompt).decode() for prompt in prompts])
        texts = [f"Answer: {seed % 3}\0" for seed in seeds.tolist()]
        tokens = torch.tensor([list(text.encode()) for text in texts])
        if progress is not None:
            progress(tokens.numel(), len(texts))
        return Responses(
            tokens, torch.zeros(tokens.shape), torch.ones(tokens.shape, dtype=torch.bool), tokens[:, -1] == 0, 0
        )


def make(count=5, k=4, grader=None, seed=7):
    problems = [Problem(f"p-{n}", f"what is {n}?", str(n % 3)) for n in range(count)]
    return Evaluation(
        name="numbers",
        problems=problems,
        encode=lambda problem: list(problem.problem.encode()),
        read=lambda tokens: bytes(token for token in tokens if token).decode(),
        grader=grader or Grader(),
        k=k,
        sampling=Sampling(16),
        seed=seed,
    )


@pytest.fixture
def small_turns(monkeypatch):
    monkeypatch.setattr(evaluate, "ROWS", 8)  # two problems of four responses


def test_every_response_is_that_of_its_own_seed():
    """A response depends on (seed, problem, k), not on the others; verdicts stand with their responses."""
    evaluation = make()
    answers = evaluation(Parrot())
    for n, answer in enumerate(answers):
        digit = derive(7, f"p-{n // 4}", n % 4) % 3
        assert (answer.id, answer.k, answer.response) == (f"p-{n // 4}", n % 4, f"Answer: {digit}")
        assert answer.verdict.correct is (digit == n // 4 % 3)
        assert (answer.ended, answer.tokens) == (True, len("Answer: 1") + 1)
    one = make()
    assert Evaluation(**{**vars(one), "problems": one.problems[3:4]})(Parrot()) == answers[12:16]


def test_a_name_with_brackets_is_no_pattern(tmp_path):
    """A data file my[1].jsonl gives its name to the evaluation; the model card lists what is finished."""
    named = dataclasses.replace(make(), name="my[1]")
    callback = EvaluationCallback(SimpleNamespace(version=2), None, named, print)
    callback.folder = RunFolder(tmp_path)
    callback.folder.evaluations.mkdir()
    for name, rate in (("my[1]", 0.25), ("my1", 0.75)):
        text = f'{{"step": 2, "scores": {{"pass_rate": {rate}, "reward": {rate}}}}}'
        (callback.folder.evaluations / f"{name}-step-2.json").write_text(text)
    assert callback.finished() == {2: 0.25}


class Broken:
    """A grader that comes to no verdict on every answer from the `after`-th call on."""

    def __init__(self, after):
        self.grader, self.calls, self.after = Grader(), 0, after

    def grade(self, items):
        self.calls += 1
        if self.calls <= self.after:
            return self.grader.grade(items)
        return [Verdict(None, None, "timeout", "no worker", None) for _ in items]


def test_an_outage_of_the_verifier_ends_the_evaluation_and_leaves_no_trace(tmp_path, small_turns):
    record = tmp_path / "record.jsonl"
    with pytest.raises(ComponentDied, match=r"no verdict on 8 of 8 responses \(no worker\)"):
        make(grader=Broken(after=1))(Parrot(), record)
    assert len(record.read_bytes().splitlines()) == 8  # the turn before it
    whole = make()(Parrot(), tmp_path / "whole.jsonl")
    assert make()(Parrot(), record) == whole
    assert record.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_the_record_is_continued_and_nothing_is_asked_twice(tmp_path, small_turns):
    whole = make()(Parrot(), tmp_path / "whole.jsonl")
    engine = Parrot()
    lines = (tmp_path / "whole.jsonl").read_bytes().splitlines(keepends=True)
    assert len(lines) == 20
    for kept, asked in (
        (lines[:8], [["what is 2?", "what is 3?"], ["what is 4?"]]),
        ([*lines[:12], lines[12][:30]], [["what is 3?"], ["what is 4?"]]),  # torn in the middle of a line
        (lines[:10], [["what is 2?", "what is 3?"], ["what is 4?"]]),  # a problem's half counts as nothing
        (lines, []),
    ):
        engine.asked.clear()
        record = tmp_path / "record.jsonl"
        record.write_bytes(b"".join(kept))
        assert make()(engine, record) == whole
        assert engine.asked == asked
        assert record.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_a_turn_has_room_for_all_engines(monkeypatch, small_turns):
    """Two problems a turn for one engine, five for the three of three processes."""
    for size, turns in ((1, [2, 2, 1]), (3, [5])):
        group, parrot = ProcessGroup(), Parrot()
        group.size = size
        engine = DistributedEngine(None, group)
        engine.generate = parrot.generate
        make()(engine)
        assert [len(asked) for asked in parrot.asked] == turns


def answered(*verdicts):
    return [Answered("p", n, f"response {n % 2}", True, 3, verdict) for n, verdict in enumerate(verdicts)]


def test_no_verdict_is_not_right_and_no_answer_is_an_answer():
    right, wrong = Verdict(True, "7", "integer", "", 1.0), Verdict(False, "8", "integer", "", 0.0)
    silent, lost = Verdict(False, None, "none", "", 0.0), Verdict(None, "9", "timeout", "")
    draws = graded_draws(answered(right, wrong, silent, lost, silent, right), 6)
    assert draws.right.tolist() == [[1, 0, 0, 0, 0, 1]]
    assert draws.answer.tolist() == [[0, 1, 2, 3, 2, 0]]


def test_integers_vote_together_whatever_they_wear():
    """Votes are counted by value where there is one, and by text without spaces elsewhere."""
    texts = ["18", "+18", "$018$", "1 8x", "18x", "\\frac{36}{2}", "x"]
    draws = graded_draws(answered(*(Verdict(False, text, "integer", "", 0.0) for text in texts)), 7)
    assert draws.answer[0].tolist() == [0, 0, 0, 3, 3, 0, 6]
