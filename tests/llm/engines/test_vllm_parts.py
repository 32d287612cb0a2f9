"""The parts of the vLLM engine that need no vLLM: versions, sleep, arguments, names, the file of weights, outputs."""

import json
import os
import re
import struct
import subprocess
import sys
from dataclasses import dataclass, replace
from types import ModuleType, SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

from pmdkit.errors import Diverged, EnvironmentLacks, UsageError
from pmdkit.llm.engines.base import EngineConfig, EngineLost
from pmdkit.llm.engines.vllm import arguments, check_version, plugin
from pmdkit.llm.engines.vllm.arguments import write_folder
from pmdkit.llm.engines.vllm.colocate import SleepState
from pmdkit.llm.engines.vllm.outputs import to_responses
from pmdkit.llm.engines.vllm.weights_file import WeightNames, folder_for, read_weights, write_weights
from pmdkit.llm.weights import GatheredWeights
from pmdkit.specs.llm import RolloutTable, VLLMTable

SIZES = {
    "vocab_size": 40,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 64,
    "tie_word_embeddings": True,
}
DENSE = Qwen2Config(**SIZES)
SPARSE = Qwen3MoeConfig(
    **SIZES | {"tie_word_embeddings": False}, moe_intermediate_size=8, num_experts=3, num_experts_per_tok=2, head_dim=8
)


def model_of(config):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(config)


@pytest.mark.parametrize(
    "version", ["0.28.0", "0.32.0", "0.32.0+cpu", "0.32.1rc1", "0.33.0.dev12+g1234abc", "0.100.0", "1.0.0"]
)
def test_supported_versions(version):
    check_version(version)


@pytest.mark.parametrize("version", ["0.23.9", "0.24.0", "0.24.1.post1", "0.27.9", "0.2.4", "dev", "", None])
def test_other_versions_are_named_beside_the_supported_ones(version):
    found = "which is not installed" if version is None else f"vLLM {version} is installed"
    with pytest.raises(EnvironmentLacks, match=rf"{re.escape(found)}.*0\.28 or later is needed: pip") as refused:
        check_version(version)
    assert refused.value.exit_code == 3


class Recorder:
    """An LLM that records its calls."""

    def __init__(self, kept: bool = True) -> None:
        self.calls: list[str] = []
        self.kept = kept

    def sleep(self, level=1):
        self.calls.append(f"sleep {level}")

    def wake_up(self, tags=None):
        self.calls.append(f"wake {tags}")

    def reset_prefix_cache(self):
        self.calls.append("reset")
        return self.kept


def test_an_update_sleeps_and_a_publish_wakes_in_order():
    llm = Recorder()
    phases = SleepState(llm, sleeping=True)
    phases.publish(lambda: llm.calls.append("send"))
    phases.enter("rollout")
    phases.check_ready()
    for _ in range(3):  # every ministep says so
        phases.enter("update")
    with pytest.raises(UsageError, match="forgot its weights"):
        phases.check_ready()
    phases.enter("rollout")
    with pytest.raises(UsageError, match="forgot its weights"):
        phases.check_ready()
    phases.publish(lambda: llm.calls.append("send"))
    phases.check_ready()
    assert llm.calls == [
        *("send", "reset"),
        *("sleep 2", "wake ['weights']", "send", "wake ['kv_cache']", "reset"),
    ]


def test_without_sleep_nothing_sleeps():
    llm = Recorder()
    phases = SleepState(llm, sleeping=False)
    phases.publish(lambda: llm.calls.append("send"))
    for phase in ("update", "idle", "rollout", "update"):
        phases.enter(phase)
        phases.check_ready()
    assert llm.calls == ["send", "reset"]


def test_an_engine_without_weights_neither_writes_nor_sleeps():
    llm = Recorder()
    phases = SleepState(llm, sleeping=True)
    phases.enter("update")
    assert llm.calls == []
    with pytest.raises(UsageError, match="no weights yet"):
        phases.check_ready()


@pytest.mark.parametrize("broken", ["send", "wake", "sleep", "reset"])
def test_what_fails_on_the_way_breaks_the_engine_for_good(broken):
    llm = Recorder(kept=broken != "reset")
    phases = SleepState(llm, sleeping=True)

    def fail(*args, **kwargs):
        raise RuntimeError("lost")

    if broken == "reset":
        with pytest.raises(EngineLost, match="older weights"):
            phases.publish(lambda: None)
    else:
        phases.publish(lambda: None)
        if broken == "sleep":
            llm.sleep = fail
            with pytest.raises(RuntimeError):
                phases.enter("update")
        else:
            phases.enter("update")
            if broken == "wake":
                llm.wake_up = fail
            with pytest.raises(RuntimeError):
                phases.publish(fail)
    for call in (phases.check_ready, lambda: phases.publish(lambda: None), lambda: phases.enter("update")):
        with pytest.raises(EngineLost, match="restart"):
            call()


def wanted(device="cpu", rollout=None, size=1, context=50, **table):
    fake = SimpleNamespace(config=DENSE)
    return EngineConfig(
        fake, None, (2,), RolloutTable(engine="vllm", **(rollout or {})), VLLMTable(**table),
        context=context, device=torch.device(device), size=size,
    )  # fmt: skip


def test_arguments_on_a_cpu_and_on_an_accelerator(tmp_path):
    here = arguments.llm_arguments(wanted(cache_gib=0.5), tmp_path)
    assert here["kv_cache_memory_bytes"] == 2**29
    assert (here["max_model_len"], here["load_format"], here["logprobs_mode"]) == (51, "dummy", "processed_logprobs")
    assert here["enforce_eager"]
    assert "distributed_executor_backend" not in here
    there = arguments.llm_arguments(wanted("cuda", memory=0.3, rows=64), tmp_path)
    assert (there["gpu_memory_utilization"], there["enable_sleep_mode"], there["max_num_seqs"]) == (0.3, True, 64)
    assert not there["enforce_eager"]


def test_an_engine_that_writes_during_updates_does_not_sleep():
    assert arguments.sleep_enabled(wanted("cuda"))
    assert not arguments.sleep_enabled(wanted("cuda", rollout={"lag": 1}))
    assert not arguments.sleep_enabled(wanted("cuda", sleep=False))
    assert not arguments.sleep_enabled(wanted("cpu"))


def test_several_processes_need_groups(tmp_path):
    given = arguments.llm_arguments(wanted("cuda", size=4, tensor_parallel=2), tmp_path)
    assert given["distributed_executor_backend"] == "external_launcher"
    assert arguments.llm_arguments(wanted(size=2), tmp_path)["tensor_parallel_size"] == 1
    with pytest.raises(UsageError, match=r"tensor_parallel is 3; expected a divisor of parallel.processes, 4"):
        arguments.llm_arguments(wanted("cuda", size=4, tensor_parallel=3), tmp_path)


@pytest.mark.parametrize("name", ["model", "logprobs_mode", "load_format", "seed", "tokenizer"])
def test_options_pass_through_but_for_ours(tmp_path, name):
    assert arguments.llm_arguments(wanted(options={"swap_space": 0}), tmp_path)["swap_space"] == 0
    with pytest.raises(UsageError, match=f"sets {name}, which pmdkit sets itself"):
        arguments.llm_arguments(wanted(options={name: "x"}), tmp_path)


def test_transfers():
    assert arguments.transfer_backend(wanted()) == "file"
    assert arguments.transfer_backend(wanted("cuda")) == "ipc"
    assert arguments.transfer_backend(wanted("cuda", transfer="file")) == "file"
    with pytest.raises(UsageError, match="vllm-server"):
        arguments.transfer_backend(wanted("cuda", transfer="nccl"))


def test_the_environment_is_set_before_vllm_is_imported(monkeypatch):
    monkeypatch.setattr(os, "environ", {})
    monkeypatch.delitem(sys.modules, "vllm", raising=False)
    arguments.set_environment()
    assert os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
    arguments.set_environment()  # again is no harm
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1"
    with pytest.raises(UsageError, match=r"VLLM_ENABLE_V1_MULTIPROCESSING is 1 .* unset it"):
        arguments.set_environment()
    os.environ.clear()
    monkeypatch.setitem(sys.modules, "vllm", ModuleType("vllm"))
    with pytest.raises(UsageError, match="imported before VLLM_LOGGING_STREAM"):
        arguments.set_environment()


@pytest.mark.parametrize("config", [DENSE, SPARSE], ids=["dense", "sparse"])
def test_names_are_those_of_a_saved_model(config, tmp_path):
    """transformers holds experts as one tensor and files hold them one by one: our stream is what it saves itself."""
    model = model_of(config)
    model.save_pretrained(tmp_path)
    saved = load_file(tmp_path / "model.safetensors")
    names = WeightNames(config)
    found = dict(names.stream(dict(model.state_dict())))
    tied = {"lm_head.weight"} if config.tie_word_embeddings else set()
    assert set(found) == set(saved) | tied == set(names.file_shapes)
    assert all(torch.equal(found[name], value) for name, value in saved.items())
    assert all(tuple(found[name].shape) == shape for name, shape in names.file_shapes.items())
    for name in tied:
        assert torch.equal(found[name], model.state_dict()["model.embed_tokens.weight"])


def test_tied_weights_may_have_any_of_their_names():
    names, weights = WeightNames(DENSE), dict(model_of(DENSE).state_dict())
    head = weights["lm_head.weight"]
    for left_out in ("lm_head.weight", "model.embed_tokens.weight"):
        found = dict(names.stream({name: value for name, value in weights.items() if name != left_out}))
        assert torch.equal(found["lm_head.weight"], head)
        assert torch.equal(found["model.embed_tokens.weight"], head)
    with pytest.raises(UsageError, match=r"lack .*embed_tokens"):
        names.check(name for name in weights if name not in ("lm_head.weight", "model.embed_tokens.weight"))


class Counted(GatheredWeights):
    """Counts how often a tensor is put together, as all processes must do in step."""

    def __init__(self, shares):
        super().__init__(shares)
        self.asked: list[str] = []

    def __getitem__(self, name):
        self.asked.append(name)
        return super().__getitem__(name)


def test_a_tensor_is_put_together_once_and_in_order():
    weights = dict(model_of(SPARSE).state_dict())
    counted = Counted(weights)
    for _ in WeightNames(SPARSE).stream(counted):
        pass
    assert counted.asked == list(weights)


@pytest.mark.parametrize(
    ("bad", "error"), [(torch.zeros(16, 17), UsageError), (torch.full((16, 16), torch.inf), Diverged)]
)
def test_shapes_and_numbers_are_checked(bad, error, tmp_path):
    names = WeightNames(DENSE)
    weights = dict(model_of(DENSE).state_dict()) | {"model.layers.1.self_attn.o_proj.weight": bad}
    with pytest.raises(error, match=r"layers\.1\.self_attn\.o_proj"):
        write_weights(tmp_path / "weights", names.stream(weights), names.file_shapes, torch.float32)
    assert list(tmp_path.iterdir()) == [], "nothing is left of a file that was given up"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("config", [DENSE, SPARSE], ids=["dense", "sparse"])
def test_a_file_holds_the_weights(config, dtype, tmp_path):
    names, model = WeightNames(config), model_of(config)
    file = write_weights(tmp_path / "weights", names.stream(dict(model.state_dict()), dtype), names.file_shapes, dtype)
    assert file.as_json() == {
        "path": str(tmp_path / "weights"),
        "digest": file.digest,
        "size": os.stat(file.path).st_size,
    }
    found = read_weights(file, names.file_shapes)
    expected = dict(names.stream(dict(model.state_dict()), dtype))
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], value) for name, value in expected.items())
    assert [path.name for path in tmp_path.iterdir()] == ["weights"]


def spoil(path, how):
    data = bytearray(path.read_bytes())
    if how == "cut off":
        path.write_bytes(data[:-40])
    elif how == "altered":
        data[-3] ^= 1
        path.write_bytes(data)
    elif how == "gone":
        path.unlink()


@pytest.mark.parametrize(("how", "match"), [("cut off", "cut off"), ("altered", "altered"), ("gone", "cannot be read")])
def test_a_spoilt_file_is_refused(how, match, tmp_path):
    names = WeightNames(DENSE)
    stream = names.stream(dict(model_of(DENSE).state_dict()))
    file = write_weights(tmp_path / "w", stream, names.file_shapes, torch.float32)
    spoil(tmp_path / "w", how)
    with pytest.raises(EngineLost, match=match):
        read_weights(file, names.file_shapes)


def test_a_file_of_another_model_is_refused(tmp_path):
    small, other = WeightNames(DENSE), WeightNames(Qwen2Config(**SIZES | {"vocab_size": 48}))
    stream = small.stream(dict(model_of(DENSE).state_dict()))
    file = write_weights(tmp_path / "w", stream, small.file_shapes, torch.float32)
    with pytest.raises(EngineLost, match=r"lm_head.weight is \[40, 16\]; expected \[48, 16\]"):
        read_weights(file, other.file_shapes)
    text = json.dumps({}).encode()
    (tmp_path / "w").write_bytes(struct.pack("<Q", len(text)) + text)
    with pytest.raises(EngineLost):
        read_weights(replace(file, size=len(text) + 8), small.file_shapes)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    assert folder_for(str(tmp_path)) == tmp_path
    with pytest.raises(EnvironmentLacks, match=r"vllm\.folder"):
        folder_for(str(tmp_path / "absent"))


WRITER = """
import signal, sys
from pathlib import Path
import torch
from pmdkit.llm.engines.vllm.weights_file import write_weights
write_weights(Path(sys.argv[1]), [("w", torch.zeros(4))], {"w": (4,)}, torch.float32)
print("written", flush=True); signal.pause()
"""


@pytest.mark.slow
def test_weights_of_a_killed_trainer_do_not_stay_in_shared_memory(tmp_path, monkeypatch):
    """A whole model each. Those of one that lives stay, and a file so new that it may not be locked yet."""
    monkeypatch.setattr("pmdkit.llm.engines.vllm.weights_file.SHARED_MEMORY", tmp_path)
    left = tmp_path / "pmdkit-weights-17-0.safetensors"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(left)], stdout=subprocess.PIPE)
    with writer:
        assert writer.stdout.readline() == b"written\n"
        os.utime(left, (0, 0))
        assert folder_for(None) == tmp_path
        assert left.exists()
        writer.kill()
    os.utime(left)
    folder_for(None)
    assert left.exists()
    os.utime(left, (0, 0))
    folder_for(None)
    assert not left.exists()


def test_a_file_that_is_removed_leaves_no_descriptor(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    file = write_weights(tmp_path / "weights", [("w", torch.zeros(4))], {"w": (4,)}, torch.float32)
    assert len(os.listdir("/proc/self/fd")) == before + 1
    file.remove()
    assert (len(os.listdir("/proc/self/fd")), list(tmp_path.iterdir())) == (before, [])


class Saved:
    def save_pretrained(self, folder):
        (folder / "tokenizer.json").write_text("{}")


def test_the_folder_names_the_architecture_and_has_room_for_one_more(tmp_path):
    write_folder(tmp_path, DENSE, "Qwen2ForCausalLM", 65, Saved())
    file = json.loads((tmp_path / "config.json").read_text())
    assert file["architectures"] == ["Qwen2ForCausalLM"]
    assert file["max_position_embeddings"] == 65
    assert DENSE.max_position_embeddings == 64
    assert (tmp_path / "tokenizer.json").exists()


@dataclass
class Flat:
    token_ids: list[int]
    logprobs: list[float]

    def __len__(self):
        return len(self.token_ids)


def output(tokens, logp=None, reason="stop", versions=None):
    numbers = [-0.5] * len(tokens) if logp is None else logp
    spans = None if versions is None else [SimpleNamespace(version=version) for version in versions]
    return SimpleNamespace(
        token_ids=tokens, logprobs=Flat(tokens, numbers), finish_reason=reason, weight_versions=spans
    )


def test_outputs_become_rows():
    drawn = to_responses([output([5, 2], [-1.0, -2.0]), output([7, 7, 7]), output([3])], [2, 3], 3, 4)
    assert drawn.tokens.tolist() == [[5, 2, 2], [7, 7, 7], [3, 2, 2]]
    assert drawn.mask.sum(1).tolist() == [2, 3, 1]
    assert drawn.ended.tolist() == [True, False, True]
    assert drawn.logp[0].tolist() == [-1.0, -2.0, 0.0]
    assert drawn.version == 4


@pytest.mark.parametrize(
    "bad",
    [
        output([5, 2], [-1.0, float("nan")]),
        output([5, 2], [-1.0, 0.1]),
        output([5, 2], [None, -0.1]),
        output([5, 6]),  # stops short
        output([2, 5, 5]),  # goes on behind an end
        output([5] * 4),  # longer than the budget
        output([]),
        output([5, 2], versions=["3"]),
        output([5, 2], versions=["4", "5"]),
        SimpleNamespace(token_ids=[5, 2], logprobs=None, finish_reason="stop", weight_versions=None),
        SimpleNamespace(token_ids=[5, 2], logprobs=Flat([5], [-1.0]), finish_reason="stop", weight_versions=None),
        SimpleNamespace(
            token_ids=[5, 2], logprobs=[{5: SimpleNamespace(logprob=-1.0)}, {9: None}], finish_reason="stop"
        ),
    ],
)
def test_an_answer_that_makes_no_sense_is_refused(bad):
    with pytest.raises(EngineLost, match="row 1"):
        to_responses([output([3]), bad], [2, 3], 3, 4)


def test_rows_of_one_version_pass():
    assert to_responses([output([5, 2], versions=["4", "4"])], [2], 3, 4).version == 4


def test_registering_twice_is_no_harm_and_without_vllm_nothing_happens(monkeypatch):
    """vLLM's factory refuses a name that it has; so does this stand-in."""
    known = {}

    class Factory:
        _registry = known

        @staticmethod
        def register_engine(name, module, kind):
            assert name not in known
            known[name] = kind

    room = SimpleNamespace(factory=SimpleNamespace(WeightTransferEngineFactory=Factory))
    monkeypatch.setitem(sys.modules, "vllm.distributed.weight_transfer", room)
    monkeypatch.setattr(plugin, "find_spec", lambda name: None)
    plugin.register()
    assert not known
    monkeypatch.setattr(plugin, "find_spec", lambda name: True)
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "vllm.distributed", SimpleNamespace(weight_transfer=room))
    plugin.register()
    plugin.register()
    assert list(known) == [plugin.FILE, plugin.TENSORS]


def test_the_class_names_of_the_skeleton():
    assert WeightNames(SPARSE).architecture == Qwen3MoeForCausalLM.__name__
    assert WeightNames(DENSE).architecture == Qwen2ForCausalLM.__name__
