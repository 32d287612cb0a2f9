"""What a run keeps to itself: keys and passwords, and with its defaults everything that could go over a network.

Secrets given to a command reach no file of the run, no tracker and no error; ordinary words do. No run listens beyond
loopback, connects to anything elsewhere, or looks up a name: these are real processes. The LLM runs load a model from a
folder, with the verifier's processes beside them; one has two ranks that meet by gloo.
"""

import json
import os
import subprocess
import sys

import pytest

from pmdkit.errors import UsageError
from pmdkit.observe import redact, trackers
from pmdkit.observe.redact import BLANK
from pmdkit.observe.run_folder import RunFolder, make_writable
from pmdkit.observe.trackers import NO_TELEMETRY, no_telemetry

from .processes import ROOT
from .sockets import address, loopback, watch

TOKENS = {
    "Hugging Face": "hf_" + "aB3" * 11,
    "GitHub": "ghp_" + "x9Y" * 12,
    "GitHub, fine": "github_pat_" + "x9Y_" * 12,
    "GitLab": "glpat-" + "x9Y-" * 6,
    "OpenAI": "sk-proj-" + "x9Yz" * 10,
    "Slack": "xoxb-1234567890-abcdef",
    "Amazon": "AKIA" + "Q7" * 8,
    "Google": "AIza" + "x9Y-w" * 7,
    "web token": "eyJhbGciOiJI.eyJzdWIiOiIx.SflKxwRJSMeKKF2Q",
    "PyPI": "pypi-" + "AgEIcHlwaS5vcmc" * 2,
}
SECRET = "correct-horse-1"


@pytest.mark.parametrize("kind", TOKENS)
def test_well_known_forms_are_blanked_wherever_they_stand(kind):
    token = TOKENS[kind]
    for sentence in (token, f"failed with {token}.", f"https://example.org/{token}/x", f"--out=runs/{token}"):
        assert token not in redact.text(sentence)
        assert BLANK in redact.text(sentence)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--api-key", SECRET],
        [f"--hf-token={SECRET}"],
        ["--set", f"vllm.options.api_key={SECRET}"],
        ["--set", f'run.password="{SECRET}"', "x=1"],
        [f"https://me:{SECRET}@example.org/x"],
        ["--set", f'vllm.urls=["http://{SECRET}@10.0.0.1:8000"]'],
        [f"https://example.org/?a=1&access_token={SECRET}"],
        [f"Authorization: Bearer {SECRET}-{SECRET}"],
        [f"WANDB_API_KEY={SECRET}"],
        [f"AWS_SECRET_ACCESS_KEY={SECRET}"],
    ],
)
def test_what_goes_under_the_name_of_a_secret_is_blanked(arguments):
    told = redact.command(["llm", "starter", *arguments, "--json"])
    assert SECRET not in " ".join(told)
    assert BLANK in " ".join(told)
    assert told[:2] == ["llm", "starter"]
    assert told[-1] == "--json"


ORDINARY = [
    "--set", "update.token_budget=4096", "rollout.max_prompt=1024", "vllm.cache_tokens=3", "eos_token=</s>",
    "model.path=Qwen/Qwen2.5-7B", "env.kind=key-door", "--steps", "3", "tokens=7", "https://example.org/a?b=c#d",
    "Bearer of news", "a:b@c", "runs/task-learn-something-very-long-indeed", "/home/ada/sk-learn/models",
]  # fmt: skip


def test_ordinary_words_stay():
    assert redact.command(ORDINARY) == ORDINARY


def test_nested_values():
    config = {"a": [{"token": SECRET, "steps": 3, "eos_token": "</s>"}], "urls": [f"http://u:{SECRET}@h:1"], "key": ""}
    told = redact.value(config)
    assert SECRET not in json.dumps(told)
    assert told["a"][0] == {"token": BLANK, "steps": 3, "eos_token": "</s>"}
    assert told["urls"] == [f"http://{BLANK}@h:1"]
    assert told["key"] == ""
    with pytest.raises(UsageError, match=r"^a\.token holds what looks like") as refused:
        redact.check(config)
    assert SECRET not in str(refused.value)
    redact.check({"objective": {"name": "pmd-mean"}, "update": {"token_budget": 3}, "model": {"path": "a/b"}})


def test_every_recipe_of_the_shelf_passes():
    """A refusal of an honest configuration would be a broken run."""
    from pmdkit.specs.find import names
    from pmdkit.training import plan

    seen = 0
    for tier in ("bandit", "toy", "llm"):
        for name in names(tier):
            redact.check(plan(tier, name, {})[0].record())
            seen += 1
    assert seen > 15


@pytest.fixture
def command_line(call, monkeypatch):
    """Run a command with its words in sys.argv too, where env.json finds them."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["pmdkit", *map(str, words)])
        return call(*words)

    return run


def everything(folder):
    """All bytes under a folder."""
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_a_token_in_a_command_reaches_no_file(command_line, tmp_path, capsys):
    token = TOKENS["Hugging Face"]
    (tmp_path / token).mkdir()
    assert command_line("bandit", "needle", "--steps", "2", "--json", "--out", tmp_path / token / "run") == 0
    written = everything(tmp_path / token / "run")
    assert b'"command"' in written
    assert token.encode() not in (tmp_path / token / "run" / "env.json").read_bytes()


def test_a_password_in_a_configuration_stops_a_run_before_it_is_written(tmp_path):
    """The address of a server with a password in it: a run would not use it, and config.json would keep it."""
    config = {"vllm": {"urls": [f"http://ada:{SECRET}@127.0.0.1:9"]}}
    with pytest.raises(UsageError, match=r"^vllm\.urls holds what looks like a password") as refused:
        RunFolder(make_writable(tmp_path / "run")).begin(config)
    assert SECRET not in str(refused.value)
    assert SECRET.encode() not in everything(tmp_path)


class Failing:
    """A tracker whose error names the address it called, and that keeps what it was told."""

    config: dict

    def __init__(self, folder, config, first):
        Failing.config = config
        raise ConnectionError(f"no answer from https://api:{SECRET}@tracker.example/\x1b[2J")


def test_a_tracker_is_told_no_secret_and_tells_none(tmp_path, monkeypatch):
    monkeypatch.setitem(trackers.TRACKERS, "failing", ("json", Failing))
    said = []
    made = trackers.make_trackers(["failing"], tmp_path, {"urls": [f"http://u:{SECRET}@h"], "tau": 0.1}, said.append)
    made.log({"step": 1, "pass_rate": 0.5})
    made.close()
    assert Failing.config == {"urls": [f"http://{BLANK}@h"], "tau": 0.1}
    assert len(said) == 1
    assert SECRET not in said[0]
    assert "\x1b" not in said[0]


# Sockets.

needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
TINY = str(ROOT / "tests" / "llm" / "tiny.toml")
PMDKIT = [sys.executable, "-m", "pmdkit"]
SHORT = ["--steps", "2", "--json"]


@pytest.fixture(scope="module")
def grader(tmp_path_factory):
    """A grader of one's own, which the verifier's processes run on every answer."""
    path = tmp_path_factory.mktemp("grader") / "own.py"
    path.write_text("def grade(response: str, gold: str) -> float:\n    return float(len(response) % 2)\n")
    return path


@pytest.fixture(scope="module")
def handed_in(tmp_path_factory):
    """A learner's file that tries to reach the network."""
    folder = tmp_path_factory.mktemp("submitted")
    (folder / "ada.py").write_text(
        "import socket\ndef find_lambda(pi, reward, tau):\n    socket.create_server(('', 0))\n    return 0.0\n"
    )
    return folder


OWN = 'reward.grade="{grader}:grade"'
COMMANDS = {
    "bandit": (["bandit", "needle", *SHORT, "--out", "run"], 1),
    "toy": (["toy", "copy", *SHORT, "--out", "run"], 1),
    "learn": (["learn", "grade", "{handed_in}", "--json"], 2),
    "llm": (["llm", TINY, *SHORT, "--out", "run", "--set", 'model.path="{model}"', "model.build=null", OWN], 2),
}
"The arguments, and processes that the command has at least: a grader and its pools have workers."


@needs_proc
@pytest.mark.parametrize("what", COMMANDS)
def test_nothing_listens_and_nothing_is_asked_elsewhere(what, model_folder, grader, handed_in, tmp_path):
    arguments, processes = COMMANDS[what]
    filled = [text.format(model=model_folder, grader=grader, handed_in=handed_in) for text in arguments]
    seen = watch([*PMDKIT, *filled], tmp_path)
    assert seen.code == 0, seen.told
    assert len(seen.processes) >= processes
    assert seen.elsewhere() == []
    assert seen.listening == set()


@pytest.mark.nightly
@needs_proc
def test_two_ranks_meet_on_loopback(model_folder, tmp_path):
    """torch's own store listens on every network whatever host it is given; ours does not."""
    two = ["--set", "parallel.processes=2", f'model.path="{model_folder}"', "model.build=null", "evaluation.every=0"]
    seen = watch([*PMDKIT, "llm", TINY, *SHORT, "--out", "run", *two], tmp_path)
    assert seen.code == 0, seen.told
    assert len(seen.processes) >= 3
    assert seen.connected, "the ranks were not seen to meet"
    assert seen.listening, "the store was not seen"
    assert seen.elsewhere() == []


LISTEN = "s = socket.socket(socket.AF_{}); s.bind(('{}', 0)); s.listen(); time.sleep(0.7)"
PLANTED = {
    "listens on 0.0.0.0": LISTEN.format("INET", "0.0.0.0"),
    "listens on ::": LISTEN.format("INET6", "::"),
    "socket.connect 203.0.113.7": "socket.socket().connect(('203.0.113.7', 443))",
    "socket.getaddrinfo counter.example": "urllib.request.urlopen('http://counter.example/')",
    "socket.sendto 203.0.113.7": "socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('203.0.113.7', 53))",
}


@needs_proc
@pytest.mark.parametrize("told", PLANTED)
def test_what_is_watched_for_is_seen(told, tmp_path):
    """Also in a child of a child, with an environment that was cut down. Nothing is sent: the hook refuses it."""
    code = f"import socket, time, urllib.request\n{PLANTED[told]}"
    cut = "{'PYTHONPATH': os.environ['PYTHONPATH']}"
    inner = f"import os, subprocess, sys\nsubprocess.run([sys.executable, '-c', {code!r}], env={cut})"
    seen = watch([sys.executable, "-c", inner], tmp_path)
    assert any(line.startswith(told) for line in seen.elsewhere()), seen


@needs_proc
def test_addresses_of_proc_are_read_right():
    assert address("0100007F:1F90") == "127.0.0.1 8080"
    assert address("00000000000000000000000001000000:0050") == "::1 80"
    assert loopback("127.9.9.9 1")
    assert loopback("::ffff:127.0.0.1 1")
    assert not loopback(":: 1")
    assert not loopback("192.0.2.1")
    assert not loopback("example.org")


@needs_proc
@pytest.mark.nightly
def test_libraries_are_told_not_to_count_their_users(monkeypatch):
    """Before transformers is imported, here and for every child; whoever wants it otherwise has the last word."""
    show = (
        "import json, os, pmdkit.llm.model, huggingface_hub.constants as hub; "
        "print(json.dumps([dict(os.environ), hub.HF_HUB_DISABLE_TELEMETRY]))"
    )
    bare = {name: value for name, value in os.environ.items() if name not in NO_TELEMETRY} | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", show], env=bare, capture_output=True, text=True)
    environment, off = json.loads(done.stdout)
    assert off is True
    assert {name: environment.get(name) for name in NO_TELEMETRY} == NO_TELEMETRY

    monkeypatch.setenv("DO_NOT_TRACK", "0")
    no_telemetry()
    assert os.environ["DO_NOT_TRACK"] == "0"
