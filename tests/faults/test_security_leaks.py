"""What a run keeps to itself: keys and passwords, and with its defaults everything that could go over a network.

Secrets given to a command reach no file and no error; ordinary words stay. No run connects to anything elsewhere or
looks up a name: these are real processes, watched from inside.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pmdkit.errors import UsageError
from pmdkit.observe import telemetry
from pmdkit.observe.run_folder import BLANK, RunFolder, make_writable, redacted, redacted_command, refuse_secrets
from pmdkit.resolve import resolve
from pmdkit.specs.find import names
from tests.nightly import mostly_nightly

ROOT = Path(__file__).parents[2]

TOKENS = [
    "hf_" + "aB3" * 11, "ghp_" + "x9Y" * 12, "github_pat_" + "x9Y_" * 12, "glpat-" + "x9Y-" * 6,
    "sk-proj-" + "x9Yz" * 10, "xoxb-1234567890-abcdef", "AKIA" + "Q7" * 8, "AIza" + "x9Y-w" * 7,
    "eyJhbGciOiJI.eyJzdWIiOiIx.SflKxwRJSMeKKF2Q", "pypi-" + "AgEIcHlwaS5vcmc" * 2,
]  # fmt: skip
SECRET = "correct-horse-1"
NAMED = [
    ["--api-key", SECRET], [f"--hf-token={SECRET}"], ["--set", f"vllm.options.api_key={SECRET}"],
    ["--set", f'run.password="{SECRET}"', "x=1"], [f"https://me:{SECRET}@example.org/x"],
    ["--set", f'vllm.urls=["http://{SECRET}@10.0.0.1:8000"]'], [f"https://example.org/?a=1&access_token={SECRET}"],
    [f"Authorization: Bearer {SECRET}-{SECRET}"], [f"AWS_SECRET_ACCESS_KEY={SECRET}"],
]  # fmt: skip
ORDINARY = [
    "--set", "update.token_budget=4096", "rollout.max_prompt=1024", "vllm.cache_tokens=3", "eos_token=</s>",
    "model.path=Qwen/Qwen2.5-7B", "env.kind=two-hills", "--steps", "3", "tokens=7", "https://example.org/a?b=c#d",
    "Bearer of news", "a:b@c", "runs/task-learn-something-very-long-indeed", "/home/ada/sk-learn/models",
]  # fmt: skip


def test_secrets_are_blanked_and_ordinary_words_stay():
    for token in TOKENS:
        for sentence in (token, f"failed with {token}.", f"https://example.org/{token}/x", f"--out=runs/{token}"):
            assert token not in redacted(sentence)
    for arguments in NAMED:
        told = redacted_command(["llm", "starter", *arguments, "--json"])
        assert SECRET not in " ".join(told)
        assert BLANK in " ".join(told)
        assert (told[:2], told[-1]) == (["llm", "starter"], "--json")
    assert redacted_command(ORDINARY) == ORDINARY
    config = {"a": [{"token": SECRET, "steps": 3, "eos_token": "</s>"}], "urls": [f"http://u:{SECRET}@h:1"], "key": ""}
    blank = {"a": [{"token": BLANK, "steps": 3, "eos_token": "</s>"}], "urls": [f"http://{BLANK}@h:1"], "key": ""}
    assert redacted(config) == blank


def test_a_configuration_with_a_secret_stops_a_run_before_it_is_written(tmp_path):
    """No recipe of the shelf is taken for one."""
    with pytest.raises(UsageError, match=r"^vllm\.urls ") as refused:
        RunFolder(make_writable(tmp_path / "run")).begin({"vllm": {"urls": [f"http://ada:{SECRET}@127.0.0.1:9"]}})
    assert SECRET not in str(refused.value)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == []
    for tier in ("bandit", "toy", "llm"):
        for name in names(tier):
            refuse_secrets(resolve(tier, name, {})[0].record())


def test_a_token_in_a_command_reaches_no_file(call, monkeypatch, tmp_path):
    out = tmp_path / TOKENS[0] / "run"
    words = ["bandit", "needle", "--steps", "2", "--json", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["pmdkit", *words])
    assert call(*words) == 0
    assert TOKENS[0].encode() not in (out / "env.json").read_bytes()


def test_libraries_are_told_not_to_count_their_users(monkeypatch):
    """Before transformers is imported, here and for every child; whoever wants it otherwise has the last word."""
    show = "import json, os, pmdkit.llm; print(json.dumps(dict(os.environ)))"
    wanted = telemetry.VARIABLES
    bare = {name: value for name, value in os.environ.items() if name not in wanted}
    done = subprocess.run([sys.executable, "-c", show], env=bare, capture_output=True, text=True, check=True)
    environment = json.loads(done.stdout)
    assert {name: environment.get(name) for name in wanted} == wanted
    monkeypatch.setenv("DO_NOT_TRACK", "0")
    telemetry.no_telemetry()
    assert os.environ["DO_NOT_TRACK"] == "0"


GRADER = "def grade(response: str, gold: str) -> float:\n    return float(len(response) % 2)\n"
SHORT = ["--steps", "2", "--json", "--out", "run"]
TWO = ["--set", "parallel.processes=2", "--set", "evaluation.every=0"]
LLM = ["llm", str(ROOT / "tests" / "llm" / "tiny.toml"), *SHORT]
COMMANDS = {"bandit": ["bandit", "needle", *SHORT], "llm": LLM, "two ranks": [*LLM, *TWO]}
UNSET = {"DO_NOT_TRACK", "HF_HUB_OFFLINE", "HF_HUB_DISABLE_TELEMETRY", "VLLM_NO_USAGE_STATS", "TRANSFORMERS_OFFLINE"}
PATHS = os.environ.get("PYTHONPATH", str(ROOT))
HOOK = """
import os, sys
ASKED = os.open(os.path.join(os.path.dirname(__file__), "asked"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
HERE = ("localhost", "127.", "::1", os.uname().nodename, "None")
def hook(event, args):
    if event in ("socket.connect", "socket.sendto", "socket.bind"):
        place = str(args[1][0]) if isinstance(args[1], tuple) else "localhost"  # or a path of this machine
    elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
        place = str(args[0])
    else:
        return
    if place and not place.startswith(HERE):
        os.write(ASKED, f"{event} {place}\\n".encode())
        if event != "socket.bind":
            raise PermissionError(f"{event} {place}")
sys.addaudithook(hook)
"""
"Says what each Python process asks of other machines, and refuses it, so nothing is sent."


@pytest.mark.parametrize("what", mostly_nightly(COMMANDS, "bandit", "llm"))
def test_nothing_is_asked_elsewhere(what, model_folder, tmp_path):
    """Without the variables that would forbid it. Where ranks listen is looked at in test_processes.py."""
    arguments = COMMANDS[what]
    if what != "bandit":
        (tmp_path / "own.py").write_text(GRADER)
        arguments = [*arguments, "--set", f'model.path="{model_folder}"', "--set", "model.build=null"]
        arguments += ["--set", f'reward.grade="{tmp_path}/own.py:grade"']
    place = tmp_path / "hook"
    place.mkdir()
    (place / "sitecustomize.py").write_text(HOOK)
    environment = {name: value for name, value in os.environ.items() if name not in UNSET}
    environment |= {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": f"{place}{os.pathsep}{PATHS}",
        "HF_HOME": str(tmp_path / "hf"),
    }
    command = [sys.executable, "-m", "pmdkit", *arguments]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert (place / "asked").read_text() == ""
