"""Every recipe with one or two layers, objective level, kind of weights and of sharding; and mistakes that are planted.

`driver.py` goes through all of them in one process, where torch has the rehearsed device.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pmdkit.child_processes import python_environment
from pmdkit.errors import EnvironmentLacks, UsageError
from pmdkit.resolve import resolve
from pmdkit_lab.planner.data_sheets import GPUS
from pmdkit_lab.planner.model_shapes import SHAPES
from pmdkit_lab.rehearsal import accepted
from pmdkit_lab.rehearsal.rehearse import compile_device, rehearse, verdict

from .driver import BRIEF, CASES, LAYERS, ONE, SEVEN, planted
from .mistakes import CORRECT, MISTAKES, NUMBERS, REFUSED

GIB = 2**30
HEAD = 152_064 * 3584  # weights of the head of 7B, and of its embedding
BLOCK = 233_057_792  # of one of its blocks
PHASES = ["build", "rollout", "publish", "score", "update", "optimizer", "save"]


@pytest.fixture(scope="module")
def found():
    return driven()


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_recipe_goes_through_two_steps(found, name):
    one = found[name]
    assert "problem" not in one, one.get("traceback")
    assert sorted(one["phases"]) == sorted(PHASES)
    half = CASES[name][0] in (SEVEN, ONE, "qwen3-30b-a3b", "starter-100m")
    assert set(one["phases"]["update"]["products"]) == {"bfloat16"} if half else {"float32"}


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
def test_a_planted_mistake_is_found_in_its_file(found, name):
    says, place = REFUSED[name]
    assert found[name]["problem"].startswith(says)
    assert found[name]["where"].startswith(place + ":")


def driven(*options):
    """What the driver prints, in a process that loads the rehearsed device before torch."""
    try:
        library = str(compile_device())
    except EnvironmentLacks as lacking:
        pytest.skip(str(lacking))
    command = [sys.executable, "-P", str(Path(__file__).with_name("driver.py")), library, *options]
    environment = {**os.environ, **python_environment(), "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert ended.stdout, ended.stderr[-2000:]
    return json.loads(ended.stdout.splitlines()[-1])


def test_what_a_mistake_replaces_stands_once_in_its_function():
    for mistake in (MISTAKES | CORRECT).values():
        with planted(*mistake):
            pass


@pytest.mark.nightly
def test_planted_mistakes_are_caught_or_deviate_and_correct_changes_are_not_accused():
    ends = {name: how for name, (how, _) in driven("--mistakes").items()}
    deadlocks, leaks = ("makes a pass", "sums a number"), ("logits of every pass kept", "64 MiB kept a step")
    assert {ends[name] for name in (*(f"rank 0 alone {what}" for what in deadlocks), *leaks)} == {"caught"}
    assert {name for name in MISTAKES if ends[name] == "silent"} == {*NUMBERS}
    assert {ends[name] for name in CORRECT} == {"silent"}


@pytest.mark.nightly
def test_mistakes_in_numbers_alone_are_seen_where_numbers_are_real():
    """One process of FSDP2 against none; `tests/llm/test_parallel.py` compares two in the same way."""
    told = driven("--numbers")
    assert {name for name, differs in told.items() if differs} == {*NUMBERS}


@pytest.mark.slow
def test_a_rehearsal_is_compared_with_the_accepted_one(found):
    """More bytes in one place, with its function and not its line; and a call that one process makes alone."""
    one = {**found["7b first"], "rank": 0}
    before = json.loads(json.dumps(accepted.record_of([one])))
    assert accepted.deviations([one], before) == []
    phase = one["phases"]["update"]
    longer = {**phase, "peak": phase["peak"] + GIB, "sites": {**phase["sites"], "head.py:9 kept [mm]": GIB}}
    (words,) = accepted.deviations([{**one, "phases": {**one["phases"], "update": longer}}], before)
    assert words.startswith("update: ")
    assert words.endswith("most at head.py kept [mm], +1")
    alone = {**phase, "order": [*phase["order"], ["gather bool", "learner.py:1 update"]]}
    other = {**one, "rank": 31, "phases": {**one["phases"], "update": alone}}
    assert accepted.unlike_calls([one, {**one, "rank": 31}]) == []
    (mistake,) = accepted.unlike_calls([one, other])
    assert (mistake["rank"], mistake["where"]) == (31, "learner.py:1 update")


@pytest.mark.slow
def test_memory_and_traffic_are_those_of_the_shapes(found):
    """What can be counted by hand, of two layers of 7B over 32 processes."""
    phases = found["7b last"]["phases"]
    weights = 2 * HEAD + LAYERS * BLOCK + 3584
    state = sum(size for site, size in phases["update"]["sites"].items() if "shard_loading" in site or "_init_" in site)
    assert state == pytest.approx(12 * weights / 32, rel=1e-3)  # float32 weights and two moments, of 32 shards
    # gradients are summed in float32 after each of two passes
    sent = phases["update"]["traffic"]
    (summed,) = (size for kind, size in sent.items() if kind.startswith("reduce_scatter"))
    assert summed == pytest.approx(2 * 4 * weights, rel=1e-3)
    assert phases["score"]["peak"] > 2 * 2 * HEAD  # embedding and head in bfloat16
    assert phases["optimizer"]["peak"] >= 16 * weights / 32  # weights, their gradients and two moments


@pytest.mark.slow
@pytest.mark.parametrize("name", ["7b four replicas", "7b eight replicas"])
def test_replicas_on_machines_of_eight(found, name):
    """Weights, gradient and moments are cut eightfold, and an update sums such a shard once between the machines."""
    phases, weights = found[name]["phases"], 2 * HEAD + LAYERS * BLOCK + 3584
    assert phases["optimizer"]["peak"] == pytest.approx(16 * weights / 8, rel=0.01)
    assert phases["update"]["traffic"]["allreduce float32"] == pytest.approx(4 * weights / 8, rel=1e-3)


@pytest.mark.slow
def test_a_process_is_left_out_only_where_its_shards_are_like_those_of_the_last(found):
    """3584 rows are 32 equal shards, or 19 of 180 and one of 164."""
    same, other = found["like 32"], found["like 20"]
    assert (same["like"], same.get("problem"), same["phases"].get("update")) == (31, None, None)
    assert ("like" in other, other.get("problem"), sorted(other["phases"])) == (False, None, sorted(PHASES))
    spec, _ = resolve("llm", SEVEN, {})
    report = verdict(spec, GPUS["H100"], [found["7b last"], same])
    assert (report["ranks"], report["alike"]) == ([31], {16: 31})
    assert report["fits"]


@pytest.mark.slow
def test_what_memory_depends_on(found):
    peak = {name: one["phases"]["update"]["peak"] for name, one in found.items() if name in CASES}
    assert peak["7b first"] < peak["7b last"]  # fewer tokens
    # a reference policy adds its float32 shards; its embedding and head are sharded again once it has scored
    added = 4 * (2 * HEAD + LAYERS * BLOCK) / 32
    assert peak["7b reference"] - peak["7b first"] == pytest.approx(added, rel=0.05)
    held = found["7b adapters"]["phases"]["update"]["sites"]
    moments = sum(size for site, size in held.items() if "_init_group" in site)
    assert moments < 0.05 * GIB  # of adapters alone


@pytest.mark.slow
def test_the_verdict(found):
    spec, _ = resolve("llm", SEVEN, {})
    one = {**found["7b last"], "rank": 31}
    assert verdict(spec, GPUS["H100"], [one])["fits"]
    small = verdict(spec, GPUS["L4"], [one])
    assert not small["fits"]
    assert small["peak_gib"] > small["limit_gib"]
    wrong = verdict(spec, GPUS["H100"], [one, {**found["a product of two dtypes"], "rank": 0}])
    assert not wrong["fits"]
    assert not wrong["rehearsed"]
    assert [mistake["rank"] for mistake in wrong["mistakes"]] == [0]


@pytest.mark.slow
def test_what_is_suggested_to_a_recipe_that_does_not_fit_was_rehearsed_and_fits(call, capsys, tmp_path):
    """An L4 whose memory vLLM takes nearly whole: what the trainer leaves is suggested, and held by the engine."""
    config = SHAPES["Qwen/Qwen2.5-1.5B"].config()
    config.num_hidden_layers, config.layer_types = LAYERS, config.layer_types[:LAYERS]
    config.save_pretrained(tmp_path)
    changes = {**BRIEF, "model.path": tmp_path, "vllm.memory": 0.9}
    words = [f"{key}={value}" for key, value in changes.items()]
    assert call("llm", ONE, "--rehearse", "--gpus", "1xL4", "--json", "--set", *words) == 4
    told = json.loads(capsys.readouterr().out)
    assert told["rehearsed"]
    assert not told["fits"]
    key, _, value = told["would_fit"]["options"].removeprefix("--set ").partition("=")
    assert (key, told["mistakes"]) == ("vllm.memory", [])
    state = told["peak_gib"] - 0.9 * 24  # the rollout is the fullest phase
    assert told["would_fit"]["peak_gib"] == pytest.approx(state + float(value) * 24, rel=1e-3)
    assert told["would_fit"]["peak_gib"] <= told["limit_gib"] < told["peak_gib"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [({}, True), ({"rollout.lag": 1, "rollout.old": "rollout"}, False), ({"rollout.engine": "vllm-server"}, False)],
)
def test_a_recipe_with_a_part_that_is_skipped_is_not_called_rehearsed(changes, says):
    spec, _ = resolve("llm", SEVEN, changes)
    report = verdict(spec, GPUS["H100"], [{"rank": 0, "phases": {}}])
    assert report["rehearsed"] is says
    assert bool(report["skipped"]) is not says


@pytest.mark.parametrize(
    ("recipe", "changes", "gpus", "kind"),
    [
        (SEVEN, {}, "32xh1000", UsageError),
        (SEVEN, {}, "H100", UsageError),
        (SEVEN, {"model.device": "cpu"}, None, UsageError),
        (SEVEN, {"vllm.tensor_parallel": 3}, None, UsageError),
        (SEVEN, {"model.path": "nobody/has-this"}, None, EnvironmentLacks),  # no configuration: nothing is rehearsed
        (SEVEN, {"schedule.group": 0}, None, UsageError),
    ],
)
def test_what_cannot_be_rehearsed(recipe, changes, gpus, kind, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(kind):
        rehearse(recipe, changes, gpus)


def test_without_a_compiler(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(EnvironmentLacks, match="install"):
        compile_device()


def test_a_compiler_that_fails(monkeypatch, tmp_path):
    compiler = tmp_path / "broken"
    compiler.write_text("#!/bin/sh\necho 'error: concepts' >&2; exit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(EnvironmentLacks, match="concepts"):
        compile_device()
    assert not list(Path(tmp_path).rglob("*.so"))
