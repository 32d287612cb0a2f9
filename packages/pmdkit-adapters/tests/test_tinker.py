"""The learner on a Tinker server: one update is torch's gradient, faults of a server are found, a killed run resumes.

The server is tinker_double.py; tinker/ has the real SkyRL.
"""

import json
from io import BytesIO
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM

from pmdkit import train
from pmdkit.errors import CheckFailed, ResumeRefused, UsageError
from pmdkit.llm.starter.tokenizer import train_tokenizer
from pmdkit.objectives import Groups, credit, load_objective
from pmdkit.observe import checkpoint
from pmdkit.resolve import resolve
from pmdkit.specs.llm import UpdateTable
from pmdkit.specs.spec import ScheduleTable
from pmdkit_adapters.tinker import certificate, learner, service
from tests.llm.conftest import SIZES, learner_of, step_gradients

from .tinker_double import Tinker

TINY = str(Path(__file__).parents[3] / "tests" / "llm" / "tiny.toml")
URL = "http://127.0.0.1:9"
TEXT = list(range(20, 44))
REWARD = "def fn(response):\n    return float(sum(map(ord, response)) % 2)\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny model of random weights with a starter's tokenizer, as a folder."""
    from pmdkit.envs.math import make_math

    place = tmp_path_factory.mktemp("model") / "tiny"
    tokenizer = train_tokenizer(make_math({"kind": "arithmetic", "numbers": 2, "problems": 300}))
    sizes = {**SIZES, "vocab_size": len(tokenizer), "eos_token_id": tokenizer.eos_token_id}
    torch.manual_seed(0)
    for part in (Qwen2ForCausalLM(Qwen2Config(**sizes)), tokenizer):
        part.save_pretrained(place)
    return place


@pytest.fixture
def serve(folder, monkeypatch):
    """`serve(fault)`: a server of that model in the place of the SDK's."""

    def start(fault=None, **options):
        server = Tinker(str(folder), AutoModelForCausalLM.from_pretrained(folder).eval(), fault, **options)
        monkeypatch.setitem(__import__("sys").modules, "tinker", server)
        monkeypatch.setattr(service, "urlopen", lambda url, timeout: BytesIO())
        monkeypatch.setenv(service.KEY, "tml-test")
        return server

    return start


def options(folder, **more):
    on_server = {"model.backend": "tinker", "remote.url": URL, "model.build": None, "model.path": str(folder)}
    short = {"evaluation.problems": 2, "rollout.width": 8, "prompts": 2, "reward.grade": "my.py:fn"}
    return {**on_server, **short, **{key.replace("__", "."): value for key, value in more.items()}}


def made(folder, objective):
    """A learner and the backend around it."""
    from pmdkit.llm import backend

    spec, _ = resolve("llm", TINY, options(folder, reward__grade="math"))
    return backend.make_backend(spec, objective).learner


@pytest.mark.slow
@pytest.mark.parametrize("fault", [None, "sum"])
@pytest.mark.parametrize("name", ["pmd-mean", "grpo", "tb"])
def test_an_update_has_the_gradient_of_the_learner_with_the_model_here(serve, folder, name, fault):
    """The same rollouts through CausalLearner's own forward and backward pass; "sum" takes the other call."""
    server, objective = serve(fault), load_objective(name, kl_coef=0.1)
    mine = made(folder, objective)
    rollouts = mine.rollout(torch.arange(2), 4, 0)
    assert rollouts.measured["mismatch_max"] < 1e-5
    groups = Groups((torch.arange(8.0, dtype=torch.float64) % 3 == 0).double().view(2, 4), rollouts.mass)
    batch = credit(objective, groups, rollouts.logp_old, rollouts.mask, rollouts.logp_ref, rollouts.width)
    here = AutoModelForCausalLM.from_pretrained(folder).eval()
    other = learner_of(here, mine.engine, mine.encode, 8, ScheduleTable(lr=1e-3, optimizer="adamw"), UpdateTable())
    with torch.no_grad():
        torch.testing.assert_close(mine.logp(rollouts), other.logp(rollouts), atol=1e-5, rtol=0)
        torch.testing.assert_close(rollouts.logp_ref, other.logp(rollouts), atol=1e-5, rtol=0)  # nothing has moved yet
    wanted = step_gradients(other)
    theirs, ours = other.update(objective, rollouts, batch), mine.update(objective, rollouts, batch)
    assert ours["loss"] == pytest.approx(theirs["loss"], abs=1e-6)
    assert ours["grad_norm"] == pytest.approx(theirs["grad_norm"], rel=1e-4)
    found = server.clients[-1].gradient
    assert found.keys() == wanted.keys()
    clip = min(1.0, 1.0 / theirs["grad_norm"])  # both clip in place before the step
    for key, gradient in wanted.items():
        torch.testing.assert_close(found[key], gradient, atol=1e-5 * clip * theirs["grad_norm"], rtol=1e-3)
    for mine_, other_ in zip(server.clients[-1].model.parameters(), here.parameters(), strict=True):
        torch.testing.assert_close(mine_, other_, atol=3e-4, rtol=0)  # Adam turns rounding near 0 into part of a step
    with pytest.raises(UsageError):
        mine.logp(rollouts)


@pytest.mark.slow
@pytest.mark.parametrize("fault", [None, "sum", "absolute", "length", "mean", "sign", "positive"])
def test_the_certificate_finds_what_a_server_does_to_the_gradient(serve, folder, fault):
    server = serve(fault)
    spec, _ = resolve("llm", TINY, options(folder, reward__grade="math"))
    make = service.connect(spec)
    if fault in (None, "sum"):
        witness, faults = certificate.certify(make, TEXT)
        assert witness.client.call == certificate.CALLS[fault == "sum"]
        assert witness.fault() is None
        assert len(faults) == (fault == "sum")
    else:
        with pytest.raises(CheckFailed):
            certificate.certify(make, TEXT)
    assert not server.states


@pytest.mark.slow
def test_a_killed_run_resumes_from_the_state_on_the_server(serve, folder, tmp_path, monkeypatch, capsys):
    """A kill between the ministeps of step 3: the run ends with the rows and weights of one that nothing stopped."""
    Path("my.py").write_text(REWARD)
    server, runs = serve(), []
    whole = train("pmd-mean", "llm", TINY, out="whole", options=options(folder))
    assert all(row["grad_norm"] > 0 and row["mismatch_max"] < 1e-4 for row in whole.metrics)
    last = server.clients[-1]
    update = learner.TinkerLearner.update

    def killed(self, *given):
        runs.append(self.version)
        if runs.count(2) == 2:
            raise KeyboardInterrupt
        return update(self, *given)

    monkeypatch.setattr(learner.TinkerLearner, "update", killed)
    with pytest.raises(KeyboardInterrupt):
        train("pmd-mean", "llm", TINY, out="cut", options=options(folder))
    monkeypatch.setattr(learner.TinkerLearner, "update", update)
    before = dict(server.states)
    (kept,) = [
        path
        for path in before
        if path.endswith("step-2") and path in Path("cut/checkpoints/step-2/state.json").read_text()
    ]
    server.states.clear()
    with pytest.raises(ResumeRefused):  # the server has forgotten
        train("pmd-mean", "llm", TINY, out="cut", resume=True, options=options(folder))
    server.states[kept] = next(state for path, state in before.items() if path.endswith("step-1"))
    with pytest.raises(ResumeRefused):  # it restores another state under that name
        train("pmd-mean", "llm", TINY, out="cut", resume=True, options=options(folder))
    server.states[kept] = before[kept]
    moved = options(folder, remote__url="http://127.0.0.2:9")
    cut = train("pmd-mean", "llm", TINY, out="cut", resume=True, options=moved)
    rows = [[{k: v for k, v in row.items() if "seconds" not in k} for row in run.metrics] for run in (whole, cut)]
    assert rows[0] == rows[1]
    for mine, theirs in zip(server.clients[-1].model.parameters(), last.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    assert checkpoint.load_step(Path("cut/checkpoints/step-3").absolute())["model"] == {}


@pytest.mark.slow
def test_what_a_server_reports_is_shown_and_what_it_does_not_is_null(serve, folder, capsys):
    """One request per prompt, the costs and the fault before the first step; without a norm the column is null."""
    Path("my.py").write_text(REWARD)
    server = serve("sum", norms=False)
    run = train("pmd-mean", "llm", TINY, out="run", steps=1, options=options(folder))
    assert run.metrics[0]["grad_norm"] is None
    assert "forward_backward_custom" in capsys.readouterr().err
    assert [count for _, count in server.sampled] == [1, 1, 4, 4, 1, 1]


MISTAKES = [
    ("--backend tinker", 2, "--url"),
    ("--backend tinker --url 127.0.0.1", 2, "--url"),
    (f"--url {URL}", 2, "--backend"),
    (f"--backend tinker --url {URL} ", 2, "model.build"),
    *[
        (f"--backend tinker --url {URL} --set {change}", 2, change.partition("=")[0])
        for change in ("rollout.lag=1", "rollout.temperature=0.5", "rollout.engine=vllm", "schedule.optimizer=sgd",
                       "rollout.environment=calculator", "lora.alpha=8", "parallel.processes=2", "group=null")
    ],
    (f"--backend tinker --url {URL}", 3, "pip install"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "code", "held"), MISTAKES)
def test_what_cannot_be_given_is_one_line_and_its_exit_code(words, code, held, call, capsys, folder):
    """The SDK is not installed where these tests run, so nothing here asks a server."""
    model = [] if held == "model.build" else ["--set", "model.build=null", f"model.path={folder}"]
    assert call("llm", TINY, *model, *words.split()) == code
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert held in error


@pytest.mark.slow
def test_a_server_that_is_not_there_or_refuses(serve, folder, call, capsys, monkeypatch):
    asked = ["llm", TINY, "--backend", "tinker", "--url", URL, "--set", "model.build=null", f"model.path={folder}"]
    there = service.urlopen
    serve()
    assert call(*asked, "remote.model=other") == 2
    assert str(folder) in capsys.readouterr().err
    monkeypatch.setattr(service, "urlopen", there)
    assert call(*asked) == 3
    monkeypatch.delenv(service.KEY)
    assert call(*asked) == 3
    assert service.KEY in capsys.readouterr().err
    assert not Path("runs").exists()


def test_a_dry_run_says_what_it_costs_and_asks_nobody(folder, call, capsys):
    """2 steps of 2 prompts with 4 responses of 8 tokens; 2 evaluations of 2 problems with 1 response of 8."""
    changes = [f"{key}={json.dumps(value)}" for key, value in options(folder, reward__grade="math").items()]
    assert call("llm", TINY, "--steps", 2, "--dry-run", "--json", "--set", *changes) == 0
    plan = json.loads(capsys.readouterr().out)["plan"]["batch"]
    assert plan["tokens sampled, at most"] == 2 * 2 * 4 * 8 + 2 * 2 * 8
