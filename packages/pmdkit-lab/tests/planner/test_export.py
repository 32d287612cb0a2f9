"""Exports: the products that define the same batch, in the words of each framework; accelerate reads its own file."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pmdkit.resolve import resolve
from pmdkit_lab.planner.export import batch_of, export, lines
from pmdkit_lab.planner.hardware import cluster
from pmdkit_lab.planner.predict import Prediction
from pmdkit_lab.planner.workload import lengths, work_of

from .conftest import SEVEN


def exported(name, gpus, **changes):
    """Keys, spec and prediction."""
    spec, _ = resolve("llm", "qwen2.5-7b", changes)
    found = Prediction(SEVEN, work_of(spec), lengths("direct", spec.rollout.width), cluster(gpus))
    return export(name, spec, found), spec, found


@settings(deadline=None, max_examples=25)
@given(
    st.sampled_from([1, 2, 4, 8, 16, 32]),
    st.sampled_from([1, 2, 3, 4]),
    st.sampled_from([1, 2, 4, 16]),
    st.sampled_from([8, 16]),
    st.sampled_from([1, 2]),
    st.sampled_from([10_240, 20_480, 65_536]),
)
def test_products_are_those_of_the_recipe(count, factor, ministeps, group, passes, budget):
    prompts = 4 * factor * ministeps
    changes = {"prompts": prompts, "ministeps": ministeps, "group": group, "passes": passes, "token_budget": budget}
    trl, spec, found = exported("trl", f"{count}xH100", **changes)
    t = trl.values
    passes_of_an_update = t["per_device_train_batch_size"] * count * t["gradient_accumulation_steps"]
    assert passes_of_an_update == prompts // ministeps * group
    assert t["per_device_train_batch_size"] * count * t["steps_per_generation"] == prompts * group
    assert t["max_steps"] == spec.schedule.steps * ministeps * passes
    assert t["per_device_train_batch_size"] * found.work.longest <= max(budget, found.work.longest)

    verl = exported("verl", f"{count}xH100", **changes)[0].values
    assert verl["data.train_batch_size"] // verl["actor_rollout_ref.actor.ppo_mini_batch_size"] == ministeps
    assert verl["data.train_batch_size"] * verl["actor_rollout_ref.rollout.n"] == prompts * group
    assert verl["trainer.nnodes"] * verl["trainer.n_gpus_per_node"] == count
    assert verl["actor_rollout_ref.actor.ppo_max_token_len_per_gpu"] >= found.work.longest

    accelerate = exported("accelerate", f"{count}xH100", **changes)[0]
    steps = accelerate.program["gradient_accumulation_steps"]
    assert steps * batch_of(found, "").micro * count == prompts // ministeps * group
    assert accelerate.values["num_processes"] == count


def test_the_papers_own_numbers_come_out_in_verls_words():
    """Its table: 512 prompts, mini-batches of 32, 16 responses, 4 nodes of 8; and 20,480 tokens of its script."""
    verl = exported("verl", "32xH100")[0].values
    assert verl["data.train_batch_size"] == 512
    assert verl["actor_rollout_ref.actor.ppo_mini_batch_size"] == 32
    assert verl["actor_rollout_ref.rollout.n"] == 16
    assert verl["actor_rollout_ref.actor.ppo_max_token_len_per_gpu"] == 20_480
    assert (verl["trainer.nnodes"], verl["trainer.n_gpus_per_node"]) == (4, 8)
    assert verl["data.max_response_length"] == 8192


@pytest.mark.parametrize(("gpus", "kind"), [("1xH100", "NO"), ("8xH100", "FSDP"), ("32xH100", "FSDP")])
def test_accelerate_reads_the_file(tmp_path, gpus, kind):
    from accelerate.commands.config.config_args import ClusterConfig

    keys, _, _ = exported("accelerate", gpus)
    path = tmp_path / "config.yaml"
    path.write_text("\n".join(lines(keys)) + "\n")
    read = ClusterConfig.from_yaml_file(path)
    assert read.num_processes == int(gpus.split("x")[0])
    assert read.mixed_precision == "no"
    assert read.distributed_type == kind
    if kind == "FSDP":
        assert read.fsdp_config == {"fsdp_version": 2}


@pytest.mark.slow
def test_trl_comes_to_the_same_batch():
    """One process, since GRPOConfig counts the processes that run."""
    from dataclasses import fields

    grpo = pytest.importorskip("trl").GRPOConfig
    keys, _, _ = exported("trl", "1xH100", prompts=32, ministeps=4)
    assert set(keys.values) <= {field.name for field in fields(grpo)}
    here = keys.values | {"bf16": False, "use_cpu": True, "use_vllm": False}
    config = grpo(output_dir="unused", report_to="none", **here)
    assert config.generation_batch_size == 32 * 16
    assert config.steps_per_generation == 4 * config.gradient_accumulation_steps
    assert config.activation_checkpointing
