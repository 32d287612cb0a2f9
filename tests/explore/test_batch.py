"""The batch and staleness planner: its mathematics in Node against pmdkit's planner. The page: tests/site."""

import numpy as np
import pytest

from pmdkit_lab.planner.predict import best
from pmdkit_lab.planner.timeline import timeline

from .in_node import in_node
from .planned import PAPER, assert_close, predicted, tables

SETTINGS = [
    PAPER,
    PAPER | {"shape": "thinking", "mean": 3000.0, "ministeps": 1},
    PAPER | {"lag": 1, "serve": 8, "recompute": False, "gpus": 64},
    PAPER | {"model": "Qwen/Qwen3-30B-A3B-Base", "gpus": 64, "tp": 4, "width": 4096, "token_budget": 6144},
    PAPER | {"model": "Qwen/Qwen3-30B-A3B-Base", "gpu": "H200", "gpus": 16, "tp": 2, "width": 2048, "serve": 4},
    PAPER | {"gpu": "L40S", "gpus": 1, "fsdp2": False, "prompts": 8, "ministeps": 8, "width": 1024},
    PAPER | {"model": "Qwen/Qwen2.5-1.5B", "gpu": "L40S", "gpus": 1, "prompts": 64, "ministeps": 8, "width": 2048,
             "max_prompt": 1024, "token_budget": 16384, "fsdp2": False, "recompute": False},
    PAPER | {"model": "Qwen/Qwen2.5-0.5B", "gpu": "RTX4090", "gpus": 2, "prompts": 4096, "mean": 200.0, "width": 512,
             "fsdp2": False, "checkpointing": False, "passes": 2, "token_budget": 4096},
    PAPER | {"gpu": "L40S", "gpus": 64, "ministeps": 256},
    PAPER | {"gpus": 512, "prompts": 96, "ministeps": 3, "width": 2048, "mean": 1900.0},
]  # fmt: skip


@pytest.fixture(scope="module")
def golden(node):
    """Predictions of all settings, from Node and from pmdkit."""
    code = """
    const { predict } = await load("prediction.js");
    return given.settings.map((setting) => predict(given.tables, setting));
    """
    told = in_node(node, code, {"tables": tables(), "settings": SETTINGS})
    return [(setting, found, *predicted(setting)) for setting, found in zip(SETTINGS, told, strict=True)]


def test_memory_is_that_of_the_planner(golden):
    """By phase and part, GiB; the limit, the room for keys and values, and whether it fits."""
    verdicts = set()
    for _, found, _, wanted in golden:
        memory = wanted.memory
        assert_close(found["memory"], {
            "phases": memory.phases, "totals": memory.totals, "limit": memory.limit, "room": memory.room,
            "fits": memory.fits,
        })  # fmt: skip
        verdicts.add(memory.fits)
    assert verdicts == {True, False}  # the settings meet both


def test_seconds_are_those_of_the_planner(golden):
    """Generation, scoring, update, the step, ms per token and the speed-up over the on-policy twin."""
    waiting, waits_for = set(), set()
    for _, found, _, wanted in golden:
        generation, update = wanted.generation, wanted.update
        names = ("decode", "prefill", "sync", "steps", "queue", "seconds")
        assert_close(found["generation"], {name: getattr(generation, name) for name in names})
        names = ("compute", "wire", "optimizer", "visits", "seconds")
        assert_close(found["update"], {name: getattr(update, name) for name in names})
        assert_close(found["perToken"], wanted.ms_per_token)
        for name in ("scoring", "seconds", "tokens", "staleness", "speedup", "overlaps"):
            assert_close(found[name], getattr(wanted, name), name)
        assert found["engines"] == wanted.generators.engines
        assert (found["generators"], found["trainers"]) == (wanted.generators.count, wanted.trainers.count)
        assert_close(found["onPolicy"]["perToken"], wanted.on_policy.ms_per_token)
        waiting.add(generation.queue > 0)
        waits_for.add(update.wire > update.compute)
    assert waiting == waits_for == {True, False}  # both branches of both formulas are met


def test_the_timeline_and_the_ages_are_those_of_the_loop(node):
    """Starts and ends of every step; ages count updates from the version that wrote to the one that learns."""
    cases = [(70.0, 160.0, 6, 0, False), (70.0, 160.0, 6, 1, True), (160.0, 70.0, 6, 2, True), (5.0, 7.0, 6, 1, False)]
    code = """
    const { timeline, ages, staleness } = await load("timeline.js");
    return given.map((one) => [timeline(...one), [0, 1, 2, 5].map((s) => ages(s, one[3], 4)), staleness(one[3], 2, 2)]);
    """
    for (generating, training, steps, lag, apart), told in zip(cases, in_node(node, code, cases), strict=True):
        wanted = timeline(np.full(steps, generating), np.full(steps, training), lag, apart)
        assert_close(told[0]["generation"], wanted.generation)
        assert_close(told[0]["update"], wanted.update)
        assert told[0]["version"] == wanted.version.tolist()
        for step, ages in zip((0, 1, 2, 5), told[1], strict=True):
            assert ages == [4 * (step - int(wanted.version[step])) + k for k in range(4)]
        assert told[1][-1][-1] == told[2] == (lag + 1) * 4 - 1


def test_the_best_division_is_that_of_the_planner(node):
    """All divisions tried, the shortest step among those that fit."""
    lagged = [PAPER | {"lag": 1, "recompute": False, "gpus": gpus, "width": 1024} for gpus in (4, 16, 32)]
    lagged.append(PAPER | {"lag": 1, "gpus": 4, "gpu": "L40S", "recompute": False, "width": 1024})
    code = """
    const { bestServe } = await load("prediction.js");
    return given.settings.map((setting) => bestServe(given.tables, setting));
    """
    told = in_node(node, code, {"tables": tables(), "settings": lagged})
    wanted = [best(predicted(setting)[1]) for setting in lagged]
    assert told == [one and one.serve for one in wanted]
    assert wanted[-1] is None
    assert wanted[0] is not None


def test_the_words_of_openrlhf_say_the_same_batch(node, golden):
    """Its keys, read back with the arithmetic of its trainer, give prompts, responses, updates and accelerators."""
    code = """
    const { openrlhf } = await load("batch.js");
    const { memoryOf, predict } = await load("prediction.js");
    return given.settings.map((setting) => {
      const found = predict(given.tables, setting);
      return openrlhf(setting, found, given.tables, memoryOf(given.tables, { ...setting, serve: 0, lag: 0 }));
    });
    """
    told = in_node(node, code, {"tables": tables(), "settings": SETTINGS})
    assert sum(keys is not None for keys in told) >= 5
    for (setting, _, _, wanted), keys in zip(golden, told, strict=True):
        if keys is None:
            continue
        responses = keys["rollout.batch_size"] * keys["rollout.n_samples_per_prompt"]
        assert responses == wanted.work.rows
        assert responses // keys["train.batch_size"] == setting["ministeps"]  # ppo_utils/replay_buffer.py
        trainers = keys["actor.num_nodes"] * keys["actor.num_gpus_per_node"]
        assert trainers == wanted.trainers.count
        assert keys["train.batch_size"] % (keys["train.micro_batch_size"] * trainers) == 0  # whole accumulation
        engines = keys["vllm.num_engines"] * keys["vllm.tensor_parallel_size"]
        assert engines == wanted.generators.count
        assert keys.get("train.colocate_all", False) == (engines == trainers == setting["gpus"])
        assert keys["data.max_len"] - keys["rollout.max_new_tokens"] == setting["max_prompt"]
