"""Code of others: what a model's folder asks for is not run, and a sentence says what was asked.

Between the grader and the process that runs a learner's code go JSON alone, exact types, and no terminal command.
"""

import json
import shutil
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pmdkit.errors import UsageError
from pmdkit.llm.engines.base import EngineConfig
from pmdkit.llm.engines.vllm import arguments, server_process
from pmdkit.llm.model import load_model
from pmdkit.specs.llm import RolloutTable, VLLMTable
from pmdkit_course import exercise, ids
from pmdkit_course.judging import Failed
from pmdkit_course.notebooks import Code
from pmdkit_course.sandbox import Remote, SandboxedGrader
from pmdkit_course.serialization import decode, pack, unpack
from pmdkit_course.source import solution_source

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


# A learner's code.


def same(one, other):
    """Equal in value and in exact type, parts included."""
    assert type(one) is type(other)
    if isinstance(one, tuple | list):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            same(a, b)
    elif isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    else:
        assert one == other


@pytest.mark.parametrize("which", ids())
def test_the_arguments_of_every_exercise_arrive_as_they_are(which):
    for case in exercise(which).inputs(np.random.default_rng(0)):
        same(unpack(json.loads(json.dumps(pack(case), allow_nan=False))), tuple(case))


def test_what_json_has_no_word_for():
    case = (float("inf"), -0.0, np.float64("nan"), np.bool_(True), (), [[]], None, True, 2**40, "tau", torch.ones(2, 1))
    there = unpack(json.loads(json.dumps(pack(case), allow_nan=False)))
    assert np.isnan(there[2])
    assert type(there[2]) is np.float64
    same(there[:2] + there[3:], case[:2] + case[3:])
    assert np.copysign(1.0, there[1]) == -1.0
    with pytest.raises(TypeError, match="an argument is a object"):
        pack((object(),))


def test_a_number_of_numpy_divides_as_numpy_does():
    """In a notebook 1 / np.float64(0) is inf; of a plain float it would be an exception."""
    with np.errstate(divide="ignore"):
        assert 1 / unpack(pack((np.float64(0.0),)))[0] == float("inf")


def test_an_answer_does_not_steer_the_terminal():
    """Neither by what it raises, nor by what it returns, nor by what it writes to the pipe itself."""
    says = []
    with SandboxedGrader(seconds=20.0, memory_mb=512) as judging:
        for line in (
            "raise ValueError('\\x1b]0;owned\\x07\\x9b2J\\u202e')",
            "return type('T\\x1b[2J', (), {'__repr__': lambda self: '\\x1b[2J'})()",
            "return '\\x1b[2J'",
        ):
            cell = f"def find_lambda(pi, reward, tau):\n    {line}\n"
            verdict = judging.judge(exercise("103.2"), Code((), cell))
            assert not verdict.right
            says.append(verdict.says)
        assert judging.judge(exercise("103.2"), Code((), solution_source(exercise("103.2")))).right
    assert "\\x1b]0;owned" in says[0]
    assert all(char.isprintable() for said in says for char in said), says
    forged = decode({"is": "other", "text": "\x1b[2J"})  # a process that was taken over writes what it likes
    assert repr(forged) == "\\x1b[2J"


def test_a_forged_reply_does_not_steer_the_terminal():
    """What a process that was taken over says of a failure, instead of our own sentence."""
    runner = SimpleNamespace(ask=lambda message, seconds: {"failed": "\x1b[2J gone"})
    with pytest.raises(Failed, match=r"^\\x1b\[2J gone$"):
        Remote(runner, 1.0)(np.ones(2))
