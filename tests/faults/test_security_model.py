"""A model's folder is data: whatever its files ask for, nothing of it is run, and a sentence says what was asked."""

import json
import shutil
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from pmdkit.config import RolloutTable, VLLMTable
from pmdkit.errors import UsageError
from pmdkit.llm.engines.base import EngineConfig
from pmdkit.llm.engines.vllm import arguments, server_process
from pmdkit.llm.model import load_model

CODE = (
    "import pathlib\npathlib.Path({ran!r}).write_text('ran')\n"
    + """
from transformers import AutoConfig, PretrainedConfig, Qwen2ForCausalLM
class OwnConfig(PretrainedConfig):
    model_type = "own"
class OwnModel(Qwen2ForCausalLM):
    config_class = OwnConfig
"""
)


@pytest.fixture
def hostile(model_folder, tmp_path):
    """`hostile(file, **keys)`: the folder with code in it and these keys in one of its files."""
    folder = shutil.copytree(model_folder, tmp_path / "model")
    ran = tmp_path / "ran"
    for name in ("own.py", "modeling_own.py", "custom_generate/generate.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(CODE.format(ran=str(ran)))

    def make(file, **keys):
        path = folder / file
        path.write_text(json.dumps({**(json.loads(path.read_text()) if path.exists() else {}), **keys}))
        return SimpleNamespace(folder=folder, ran=ran)

    return make


AUTO = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"}
ASKED = [
    ("config.json", {"auto_map": AUTO}, "asks to run code of its own"),
    ("config.json", {"auto_map": AUTO, "model_type": "own"}, "asks to run code of its own"),
    ("config.json", {"text_config": {"auto_map": AUTO}}, "asks to run code of its own"),
    ("config.json", {"custom_pipelines": {"own": {"impl": "own.Own"}}}, "asks to run code of its own"),
    ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["own.T", None]}}, "asks to run code of its own"),
    ("generation_config.json", {"custom_generate": "somebody/something"}, "asks to run code of its own"),
    ("processor_config.json", {"auto_map": {"AutoProcessor": "own.P"}}, "asks to run code of its own"),
    ("config.json", {"attn_implementation": "somebody/kernel"}, "compiled code from the hub"),
    ("config.json", {"_attn_implementation": {"": "somebody/kernel"}}, "compiled code from the hub"),
    ("adapter_config.json", {"base_model_name_or_path": "somebody/else", "peft_type": "LORA"}, "names another model"),
]


@pytest.mark.parametrize(("file", "keys", "told"), ASKED)
def test_a_folder_that_asks_for_code_is_refused_and_nothing_runs(hostile, file, keys, told):
    made = hostile(file, **keys)
    with pytest.raises(UsageError, match=told):
        load_model(str(made.folder))
    assert not made.ran.exists()


def test_the_same_code_runs_where_a_library_is_told_to_trust_it(hostile):
    """The folder would run it: the tests above see a refusal, not a folder that is broken."""
    from transformers import AutoConfig

    made = hostile("config.json", auto_map={"AutoConfig": "own.OwnConfig"}, model_type="own")
    AutoConfig.from_pretrained(made.folder, **{"trust_remote_code": True})
    assert made.ran.exists()


def test_code_that_nobody_asks_for_lies_there(hostile):
    made = hostile("config.json")
    load_model(str(made.folder))
    assert not made.ran.exists()


def test_no_option_of_a_recipe_trusts_code(call, tmp_path, capsys):
    """Under any table the key is unknown, in words that name it."""
    for key in ("model.trust_remote_code", "rollout.trust_remote_code", "run.trust_remote_code"):
        out = tmp_path / key
        assert call("llm", "starter", "--set", f"{key}=true", "--out", out, "--dry-run") == 2
        assert "trust_remote_code" in capsys.readouterr().err
        assert not out.exists()


@pytest.mark.parametrize("name", ["trust_remote_code", "trust-remote-code", "Trust_Remote-Code", "trust_remote"])
@pytest.mark.parametrize("server", [False, True], ids=["in this process", "server"])
def test_no_option_of_vllm_trusts_code(name, server, tmp_path):
    """[vllm.options] goes to vLLM as it is, but for this one; vLLM's command line takes beginnings of names too."""
    table = VLLMTable(options={name: True})
    model = SimpleNamespace(config=None)
    rollout = RolloutTable(engine="vllm-server" if server else "vllm")
    wanted = EngineConfig(model, None, (2,), rollout, table, context=50, device=torch.device("cpu"), size=1)
    start = partial(server_process.server_command, wanted, tmp_path, "file", "127.0.0.1", 1, "x")
    with pytest.raises(UsageError, match=f"vllm.options has {name}"):
        start() if server else arguments.llm_arguments(wanted, tmp_path)
