"""Episodes with an environment: exact log-probabilities, no gradient from its tokens, the same bits, and learning."""

import collections
import json
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest
import torch

from pmdkit.envs.math import make_math
from pmdkit.errors import ComponentDied, UsageError
from pmdkit.llm import logprobs
from pmdkit.llm.engines.base import Sampling
from pmdkit.llm.engines.distributed import GenerateRequest
from pmdkit.llm.engines.transformers import TransformersEngine
from pmdkit.llm.grading import make_rows
from pmdkit.llm.metrics import episode_columns
from pmdkit.llm.model import prepare_model
from pmdkit.llm.prompts import Encoder
from pmdkit.llm.rewards import RewardSum
from pmdkit.llm.rollouts import row_seeds
from pmdkit.llm.starter.model import build
from pmdkit.llm.starter.tokenizer import train_tokenizer
from pmdkit.llm.task import MathTask
from pmdkit.loop import graded
from pmdkit.objectives import OBJECTIVES, credit, total
from pmdkit.process_group import SINGLE, ProcessGroup
from pmdkit.specs import LLMSpec
from pmdkit.specs.llm import RewardTable, RolloutTable, UpdateTable
from pmdkit.specs.spec import ScheduleTable
from pmdkit_adapters import concurrent_calls
from pmdkit_adapters.calculator import calculate
from pmdkit_adapters.concurrent_calls import CallFailed, ConcurrentCalls
from pmdkit_adapters.turns import Turns, check
from strict_answers import Verdict
from tests.llm.conftest import learner_of

PROBLEMS = make_math({"kind": "arithmetic", "numbers": 2, "problems": 300})
NUMBERS = torch.tensor([3, 8, 21])
GROUP, WIDTH = 4, 40


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(PROBLEMS)


@pytest.fixture
def model(tokenizer):
    return prepare_model(build("starter", tokenizer, 0))


@pytest.fixture(scope="module")
def encoder(tokenizer):
    return Encoder(tokenizer)


def ends_of(tokenizer):
    """The end token, and a third of all others: a model of random weights takes short turns."""
    return [tokenizer.eos_token_id, *range(60, 200)]


def asks_on(messages, row):
    """Says the problem's own answer and how many turns there were, twice."""
    turns = sum(message["role"] == "assistant" for message in messages)
    return [{"role": "tool", "content": f"{row['answer']}, {turns}"}] if turns < 3 else None


def silent(messages, row):
    return None


def turns_of(encoder, environment=asks_on, most=4, group=SINGLE, **options):
    rollout = RolloutTable(environment="mine", max_turns=most, **options)
    return Turns(environment, rollout, encoder, ends_of(encoder.tokenizer), PROBLEMS.problem, group)


def request(encoder, width=WIDTH, numbers=NUMBERS, group=GROUP, seed=7):
    prompts = [encoder.encode(PROBLEMS.problem(number)) for number in numbers.tolist()]
    return GenerateRequest(prompts, group, row_seeds(numbers, group, seed), Sampling(width))


def played(model, encoder, environment=asks_on, **more):
    engine = TransformersEngine(model, ends_of(encoder.tokenizer))
    asked = request(encoder, **more)
    return turns_of(encoder, environment).generate(engine, more.get("numbers", NUMBERS), asked)


def turning(model, encoder, environment=asks_on, **options):
    return learner_of(
        model,
        TransformersEngine(model, ends_of(encoder.tokenizer)),
        lambda number: encoder.encode(PROBLEMS.problem(number)),
        WIDTH,
        ScheduleTable(steps=2, group=GROUP, prompts=3, lr=1e-2, optimizer="sgd"),
        UpdateTable(token_budget=600),
        turns=turns_of(encoder, environment, **options),
    )


def test_an_environment_that_never_speaks_gives_the_bits_of_single_turns(model, encoder):
    asked = request(encoder)
    engine = TransformersEngine(model, ends_of(encoder.tokenizer))
    wanted = engine.generate(asked.prompts, asked.group, asked.seeds, asked.sampling)
    found, episodes = turns_of(encoder, silent).generate(engine, NUMBERS, asked)
    for name in ("tokens", "logp", "mask", "ended"):
        assert torch.equal(getattr(found, name), getattr(wanted, name)), name
    assert [episode.cut_off for episode in episodes] == (~wanted.ended).tolist()


def test_log_probabilities_are_those_of_the_whole_text_and_the_environment_is_context(model, encoder):
    """Token for token: scoring prompt and whole row in one forward pass gives what was drawn turn by turn."""
    drawn, episodes = played(model, encoder)
    turns = [sum(message["role"] == "assistant" for message in episode.messages) for episode in episodes]
    assert max(turns) == 3  # several turns are there at all
    mine = turning(model, encoder)
    rollouts = mine.rollout(NUMBERS, GROUP, 7)
    assert torch.equal(rollouts.responses, drawn.tokens)
    assert bool((~rollouts.mask).logical_and(torch.arange(rollouts.mask.shape[1]) < rollouts.extent[:, None]).any())
    prompts, texts, _ = mine.rows(rollouts)
    whole = TransformersEngine(model, ends_of(encoder.tokenizer)).score(prompts, texts)
    with torch.no_grad():
        scored = mine.logp(rollouts)
    for n, logp in enumerate(whole):
        mask = rollouts.mask[n, : len(logp)]
        torch.testing.assert_close(logp[mask], rollouts.logp_old[n, : len(logp)][mask], atol=2e-5, rtol=0)
        torch.testing.assert_close(scored[n, : len(logp)][mask].float(), logp[mask], atol=2e-5, rtol=0)
    assert not rollouts.logp_old[~rollouts.mask].any()
    assert not scored[~rollouts.mask].any()


@pytest.mark.parametrize("name", ["pmd-mean", "grpo", "tb"])
def test_tokens_of_the_environment_have_no_gradient(name, model, encoder, monkeypatch):
    """What the head reads before each of them has gradient 0, and the loss is that of the policy's tokens alone."""
    mine = turning(model, encoder, environment=asks_on)
    rollouts = mine.rollout(NUMBERS, GROUP, 7)
    prompts, texts, _ = mine.rows(rollouts)
    objective = OBJECTIVES[name]()
    reward = torch.arange(12.0, dtype=torch.float64).view(3, 4) % 3
    groups = graded(reward, rollouts)
    batch = credit(objective, groups, rollouts.logp_old, rollouts.mask, rollouts.logp_old, WIDTH)
    states = []
    real = logprobs.forward_packed

    def kept(*given):
        found = real(*given)
        found.retain_grad()
        states.append(found)
        return found

    monkeypatch.setattr(logprobs, "forward_packed", kept)
    loss = mine.loss_of_rows(objective, prompts, texts, list(range(12)), batch)
    loss.backward()
    (found,) = states
    places = iter(logprobs.pack(prompts, texts).predict_at)
    told = [(next(places), bool(rollouts.mask[n, t])) for n, text in enumerate(texts) for t in range(len(text))]
    own = {place for place, on in told if on}
    others = [place for place, on in told if not on and place not in own]
    assert len(others) > 20
    assert not found.grad[others].any()
    assert bool(found.grad[sorted(own)].any())
    flat = logprobs.response_logp(model, prompts, texts)  # with the environment's tokens, which the mask takes out
    table = logprobs.to_rows(flat, [len(text) for text in texts], batch.mask.shape[1]).double()
    wanted = total(objective, replace(batch, logp=table))
    torch.testing.assert_close(loss, wanted, atol=1e-6, rtol=1e-6)


def test_a_row_depends_on_its_own_prompt_and_seed_alone(model, encoder):
    """Played alone, and in another order, an episode is the same: calls and answers are never mixed up."""
    together, episodes = played(model, encoder)
    for n, number in enumerate(NUMBERS.tolist()):
        alone, own = played(model, encoder, numbers=torch.tensor([number]))
        for k in range(GROUP):
            row, length = n * GROUP + k, int(alone.mask.shape[1])
            mask = alone.mask[k]
            assert torch.equal(together.mask[row, :length], mask)
            assert torch.equal(together.tokens[row, :length][mask], alone.tokens[k][mask])
            assert own[k] == episodes[row]
            said = [message["content"] for message in own[k].messages if message["role"] == "tool"]
            answer = PROBLEMS.problem(number).answer
            assert said == [f"{answer}, {turn + 1}" for turn in range(len(said))]


def raises(messages, row):
    raise KeyError("the sandbox is gone")


class TextsGrader:
    """Right is a text that names the answer."""

    def __init__(self):
        self.items = []

    def grade(self, items):
        self.items += items
        good = [item.gold in item.response and not item.truncated for item in items]
        return [Verdict(one, None, "integer", "", float(one)) for one in good]


@pytest.mark.parametrize("cut_off", ["wrong", "mask"])
def test_rewards_of_environment_and_grader(cut_off, model, encoder):
    """A number of the environment is the reward; None leaves it to the grader, which sees the last turn alone."""

    def judge(messages, row):
        if sum(message["role"] == "assistant" for message in messages) == 1:
            return [{"role": "user", "content": "Sure?"}]
        return 0.75 if row["id"] == PROBLEMS.problem(8).id else None

    mine = turning(model, encoder, environment=judge)
    rollouts = mine.rollout(NUMBERS, GROUP, 7)
    grader = TextsGrader()
    sums = None
    if cut_off == "mask":
        sums = RewardSum(RewardTable(), (), mask_cut_off=True)
    task = MathTask(
        PROBLEMS, 3, 0, grader, mine.turns.encoder.decode, ends_of(encoder.tokenizer),
        rows=make_rows(encoder.messages), rewards=sums,
    )  # fmt: skip
    reward = task.reward(rollouts).flatten()
    episodes = rollouts.episodes
    said = [episode for episode in episodes if episode.reward is not None]
    assert {episode.reward for episode in said} == {0.75}
    assert len(grader.items) == len(episodes) - len(said) > 0
    for n, episode in enumerate(episodes):
        if episode.cut_off:
            assert bool(reward[n].isnan()) == (cut_off == "mask")
        elif episode.reward is not None:
            assert reward[n] == 0.75
        item = task.graded(rollouts).items[n]
        assert item.response == episode.messages[-1]["content"]
        assert json.loads(item.row.messages) == [dict(message) for message in episode.messages[:-1]]
        assert item.row.tokens == episode.tokens


def test_a_failure_of_the_environment_costs_its_episode_alone(model, encoder):
    """The others have the bits that they have without it; the grader is not asked about it, and it counts nowhere."""
    wanted, healthy = played(model, encoder)
    kinds = [
        lambda: 1 / 0,
        lambda: sys.exit(3),
        lambda: "fine",
        lambda: float("nan"),
        lambda: [{"role": "tool"}],
        lambda: [{"role": "tool", "content": "\ud800"}],
    ]
    asked = [n for n, episode in enumerate(healthy) if not episode.cut_off]
    failures = dict(zip(asked, kinds, strict=False))
    assert len(failures) == 6

    def environment(messages, row):
        for n, fail in failures.items():
            if tuple(messages) == healthy[n].messages:
                return fail()
        return asks_on(messages, row)

    mine = turning(model, encoder, environment=environment)
    rollouts = mine.rollout(NUMBERS, GROUP, 7)
    failed = [bool(episode.failure) for episode in rollouts.episodes]
    assert failed == [n in failures for n in range(12)]
    for n, episode in enumerate(rollouts.episodes):
        assert episode.messages == healthy[n].messages
        mask = wanted.mask[n]
        assert torch.equal(rollouts.responses[n, : len(mask)][mask], wanted.tokens[n][mask])
    grader = TextsGrader()
    read, ends = mine.turns.encoder.decode, ends_of(encoder.tokenizer)
    task = MathTask(PROBLEMS, 3, 0, grader, read, ends)
    reward = task.reward(rollouts).flatten()  # above reward.most_unscored, which is about the verifier
    assert reward.isnan().tolist() == failed
    assert len(grader.items) == 12 - 6
    groups = graded(reward.view(3, 4), rollouts)
    assert not groups.mass.flatten()[torch.tensor(failed)].any()
    assert episode_columns(rollouts)["environment_failures"] == 6


def test_a_call_that_fails_is_repeated_and_an_instance_is_not(model, encoder):
    calls = collections.Counter()

    def flaky(messages, row):
        key = json.dumps(messages)
        calls[key] += 1
        if calls[key] == 1:
            raise TimeoutError("sandbox 503")
        return asks_on(messages, row)

    wanted, healthy = played(model, encoder)
    found, episodes = played(model, encoder, flaky)
    assert episodes == healthy
    assert torch.equal(found.tokens, wanted.tokens)
    assert min(calls.values()) == 2  # two episodes may begin alike
    made = []

    class Flaky:
        def __init__(self):
            made.append(self)
            self.calls = 0

        def __call__(self, messages, row):
            self.calls += 1
            raise TimeoutError("sandbox 503")

    with pytest.raises(ComponentDied):  # in every episode
        played(model, encoder, Flaky)
    assert {one.calls for one in made} == {1}


def test_each_episode_has_its_own_state(model, encoder):
    """An instance counts its own turns; what it does to its messages and row reaches nobody else."""
    problems = replace(PROBLEMS, problem=lambda n: replace(PROBLEMS.problem(n), columns={"board": []}))

    class Counts:
        def __init__(self):
            self.turns = 0

        def __call__(self, messages, row):
            assert row["board"] == []
            assert all(message["content"] != "mine" for message in messages)
            self.turns += 1
            row["board"].append(1)
            answer = [{"role": "tool", "content": f"{row['answer']}, {self.turns}"}] if self.turns < 3 else None
            messages[0]["content"] = "mine"
            return answer

    wanted, healthy = played(model, encoder)
    turns = turns_of(encoder, Counts)
    turns.problem = problems.problem
    found, episodes = turns.generate(TransformersEngine(model, ends_of(encoder.tokenizer)), NUMBERS, request(encoder))
    assert episodes == healthy
    assert torch.equal(found.tokens, wanted.tokens)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [({"rollout.environment": "calculater"}, "did you mean 'calculator'"),
     ({"rollout.environment": "mine.py:fn"}, "warm_start.pass_rate=0")],
)  # fmt: skip
def test_an_environment_that_is_unknown_or_has_no_teacher_is_refused(changes, sentence):
    check(LLMSpec.read("calculator"))
    with pytest.raises(UsageError, match=sentence):
        check(LLMSpec.read("calculator").override(changes))


# Calls at once.


def test_calls_overlap_and_answers_keep_their_order():
    """Each of the eight calls returns once four are inside; never are there five."""
    gate, inside, most = threading.Barrier(4), [], []

    def call(n):
        inside.append(n)
        most.append(len(inside))
        gate.wait(60)
        inside.remove(n)
        return n

    found = ConcurrentCalls(60.0, 0, 4).run([partial(call, n) for n in range(8)])
    assert found == list(range(8))
    assert max(most) == 4


def test_calls_that_hang_are_left_and_counted(monkeypatch):
    monkeypatch.setattr(concurrent_calls, "MOST_HANGING", 2)
    end = threading.Event()

    def stubborn():  # no wait in C: while an exception waits for one to return, Python 3.11 stands still under a tracer
        for _ in range(6000):
            with suppress(SystemExit):
                if end.is_set():
                    return
                time.sleep(0.01)

    calls = ConcurrentCalls(0.1, 1, 1)
    found = calls.run([stubborn, lambda: 1])  # tried twice, after the other
    assert isinstance(found[0], CallFailed)
    assert found[1] == 1
    assert isinstance(calls.run([lambda: 1])[0], CallFailed)
    end.set()
    for thread in calls.hanging:
        thread.join()
    assert calls.run([lambda: 1]) == [1]


@pytest.mark.slow
def test_a_call_that_hangs_does_not_keep_the_process():
    program = (
        "import threading\n"
        "from pmdkit_adapters.concurrent_calls import ConcurrentCalls\n"
        "print(ConcurrentCalls(0.1, 0, 2).run([threading.Event().wait, lambda: 7])[1])"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert ended.stdout == "7\n"


class Two(ProcessGroup):
    """The other of two processes: it has no environment, and hears what the main one was told."""

    rank = 1

    def __init__(self, heard):
        self.heard = heard

    def broadcast_object(self, value):
        return json.loads(json.dumps(self.heard.pop(0)))


def test_one_process_asks_for_all(model, encoder):
    """The other processes play the same episodes from the replies of the main one."""
    said = []

    class Main(ProcessGroup):
        def broadcast_object(self, value):
            said.append(value)
            return value

    engine = TransformersEngine(model, ends_of(encoder.tokenizer))
    main, episodes = turns_of(encoder, group=Main()).generate(engine, NUMBERS, request(encoder))
    other, theirs = turns_of(encoder, raises, group=Two(said)).generate(engine, NUMBERS, request(encoder))
    assert episodes == theirs
    assert torch.equal(main.tokens, other.tokens)
    assert torch.equal(main.mask, other.mask)


# The calculator.


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("3+4*2", "11"), ("(3+4)*2", "14"), ("1/3+1/6", "0.5"), ("-2 - 3", "-5"), ("0.1+0.2", "0.3"), ("2*-3", "-6"),
        ("1/0", "error: a division by zero"), ("07+1", "error: this is no arithmetic"),
        ("2**9", "error: this is no arithmetic"), ("3(4)", "error: this is no arithmetic"),
        ("7//2", "error: this is no arithmetic"), ("", "error: expected numbers"),
        ("1+" * 150, "error: expected numbers"),
        ("__import__", "error: expected numbers"), ("(" * 150, "error: this is no arithmetic"),
        ("-" * 150 + "1", "1"), ("2*+3", "6"), ("12345678901234567.5*2", "24691357802469135"), (".5+5.", "5.5"),
        ("1.2.3", "error: this is no arithmetic"), ("1.5 2.5", "error: this is no arithmetic"),
    ],
)  # fmt: skip
def test_the_calculator(expression, value):
    assert calculate(expression).startswith(value)
    if not value.startswith("error"):
        assert calculate(expression) == value
