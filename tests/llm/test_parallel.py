"""Two processes on one run: the same rollouts, losses, gradients and weights as one, and checkpoints for either."""

import json
import shutil
from itertools import product

import pytest
import torch
from safetensors.torch import load_file

from pmdkit.observe import checkpoint
from pmdkit.process_group import SINGLE

from .ranks import CASES, STRATEGIES, WRITERS, go_on, learner, one_case, run_two, trained

pytestmark = [
    pytest.mark.slow,  # two processes that import transformers
    pytest.mark.filterwarnings("ignore:`gradient_checkpointing_enable` is deprecated:FutureWarning"),
]
SAVED = (*STRATEGIES, "hsdp")
RUNS = [*product(STRATEGIES, CASES), ("hsdp", "fused")]
CLOSE = {"atol": 1e-5, "rtol": 1e-5}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What two processes found; each strategy started from a checkpoint that one process wrote."""
    out = tmp_path_factory.mktemp("found")
    start = out / "alone"
    start.mkdir()
    checkpoint.Checkpoints(start).save(1, learner(SINGLE, "qwen2", "pmd-mean", "adamw").state_dict(), keep=9)
    go_on(SINGLE, start)  # writes step 2, whose optimizer has a state
    shutil.rmtree(start / "step-1")
    for strategy in SAVED:
        shutil.copytree(start, out / strategy)
    run_two("tests.llm.ranks", out, seconds=240)
    return out


@pytest.fixture(scope="module")
def alone():
    """The same in this process."""
    return {name: one_case(SINGLE, name) for name in CASES}


@pytest.mark.parametrize(("strategy", "name"), RUNS)
def test_two_processes_do_what_one_does(strategy, name, found, alone):
    """Prompts are split unevenly, passes are of different numbers, and one process may have no row at all."""
    two, one = load_file(found / f"{strategy} {name} 0.safetensors"), alone[name]
    assert two.keys() == one.keys()
    for key, value in one.items():
        if not value.is_floating_point():
            assert torch.equal(two[key], value), key
        else:
            scale = max(1.0, float(value.abs().max()))
            torch.testing.assert_close(
                two[key] / scale, value / scale, **CLOSE, msg=lambda text, key=key: f"{key}: {text}"
            )


@pytest.mark.parametrize(("strategy", "name"), RUNS)
def test_both_processes_end_on_the_same_bits(strategy, name, found):
    one, other = (load_file(found / f"{strategy} {name} {rank}.safetensors") for rank in range(2))
    assert all(torch.equal(value, other[key]) for key, value in one.items())


@pytest.mark.parametrize(
    ("strategy", "name"), [(strategy, name) for strategy in STRATEGIES for name in WRITERS[strategy]]
)
def test_engines_of_all_processes_or_of_one_write_what_one_engine_writes(strategy, name, found):
    one = trained(SINGLE, name)
    for rank in range(2):
        two = load_file(found / f"{strategy} {name} {rank}.safetensors")
        for key, value in one.items():
            if key.startswith("weight"):
                torch.testing.assert_close(two[key], value, **CLOSE)
            else:
                assert torch.equal(two[key], value), key


@pytest.mark.parametrize("strategy", SAVED)
def test_a_checkpoint_of_one_goes_on_in_two(strategy, found, tmp_path):
    """Step 2 was written by one process; its next step is the same in two, and so is its checkpoint's form."""
    shutil.copytree(found / "alone", tmp_path / "alone")
    weights = go_on(SINGLE, tmp_path / "alone")
    for key, value in load_file(found / f"{strategy} resumed 0.safetensors").items():
        torch.testing.assert_close(value, weights[key], **CLOSE)
    one, two = (checkpoint.load_step(folder / "step-3") for folder in (tmp_path / "alone", found / strategy))
    assert one["model"].keys() == two["model"].keys()
    assert one["optimizer"]["param_groups"] == two["optimizer"]["param_groups"]
    for index, slots in one["optimizer"]["state"].items():
        assert slots.keys() == two["optimizer"]["state"][index].keys()
        for name, value in slots.items():
            torch.testing.assert_close(two["optimizer"]["state"][index][name], value, **CLOSE)


@pytest.mark.parametrize("strategy", SAVED)
def test_a_checkpoint_of_two_goes_on_in_one(strategy, found, tmp_path):
    """Step 3 of two processes, taken on by one, is where one process gets to that took both steps."""
    shutil.copytree(found / strategy, tmp_path / "two")
    shutil.copytree(found / "alone", tmp_path / "one")
    go_on(SINGLE, tmp_path / "one")
    mine, other = go_on(SINGLE, tmp_path / "two"), go_on(SINGLE, tmp_path / "one")
    for key, value in other.items():
        torch.testing.assert_close(mine[key], value, atol=1e-4, rtol=0)  # AdamW's steps of 1e-2 amplify small gradients


def test_what_the_processes_tell_each_other(found):
    told = [json.loads((found / f"told {rank}.json").read_text()) for rank in range(2)]
    assert told[0] == told[1]
    assert told[0] == {
        "verdicts": [True, False],
        "checkpointing": [True, "24 GiB"],  # of the smaller accelerator
        "main": {"rank": 0},
        "any": [True, False],
        "gathered": [[], [[False, True]]],
    }
