"""model.checkpointing = "auto": where the decision flips, and that a plan is the one of what it decides."""

import json
from dataclasses import replace

import pytest

from pmdkit.resolve import resolve
from pmdkit_lab.planner.checkpointing import decide
from pmdkit_lab.planner.cluster import cluster
from pmdkit_lab.planner.memory import GIB, trainer_state, update_parts
from pmdkit_lab.planner.workload import sizes_of, work_of

SERVER = {"rollout.engine": "vllm-server", "vllm.urls": ["http://127.0.0.1:8000"]}


@pytest.mark.parametrize(
    ("recipe", "changes", "share"),
    [
        ("one-gpu", {}, 0.0),
        ("one-gpu", {"rollout.lag": 1, "vllm.memory": 0.3}, 0.3),  # an engine that does not sleep
        ("one-gpu", SERVER, 0.0),
        ("qwen2.5-7b", {}, 0.0),
    ],
)
def test_activations_are_kept_as_long_as_the_planned_update_fits(recipe, changes, share):
    """All that the update holds without checkpointing is 0.85 of the 0.9 of memory less the share of the engine."""
    spec, _ = resolve("llm", recipe, {"model.checkpointing": "auto", **changes})
    sizes, work = sizes_of(spec), work_of(spec)
    assert not work.checkpointing
    place = cluster(f"{spec.parallel.processes}xH100")
    planned = sum((trainer_state(sizes, work, place) | update_parts(sizes, work, place)).values()) / GIB
    least = planned / (0.85 * (0.9 - share))
    (on, why), (on_above, why_above) = (decide(spec, least * (1 + by)) for by in (-1e-6, 1e-6))
    assert (on, on_above) == (True, False)
    assert "do not fit" in why
    assert why_above.startswith("checkpointing: auto, off: activations of ")
    kept = update_parts(sizes, replace(work, checkpointing=False), place)["activations"] / GIB
    assert f"activations of {kept:.1f} GiB" in why


@pytest.mark.parametrize(("gpus", "on"), [("1xH100", True), ("1xH200", False)])
def test_a_plan_shows_what_is_decided_and_plans_with_it(gpus, on, call, capsys):
    told = []
    for value in ("auto", str(on).lower()):
        assert call("plan", "one-gpu", "--gpus", gpus, "--set", f"model.checkpointing={value}", "--json") == 0
        told.append(json.loads(capsys.readouterr().out))
    automatic, explicit = told
    (why,) = automatic.pop("decisions")
    assert why.startswith(f"checkpointing: auto, {'on' if on else 'off'}: ")
    assert explicit.pop("decisions") == []
    assert {key: automatic[key] for key in automatic if "least" not in key} == {
        key: explicit[key] for key in explicit if "least" not in key
    }
