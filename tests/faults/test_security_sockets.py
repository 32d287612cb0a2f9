"""With its defaults no run listens beyond loopback, connects to anything elsewhere, or looks up a name; real processes.

The LLM runs load a model from a folder, with the verifier's processes beside them; one has two ranks that meet by gloo.
"""

import json
import os
import subprocess
import sys

import pytest

from pmdkit.observe.trackers import NO_TELEMETRY, no_telemetry

from .watching import ROOT, address, loopback, watch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
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


@pytest.mark.parametrize("what", COMMANDS)
def test_nothing_listens_and_nothing_is_asked_elsewhere(what, model_folder, grader, handed_in, tmp_path):
    arguments, processes = COMMANDS[what]
    filled = [text.format(model=model_folder, grader=grader, handed_in=handed_in) for text in arguments]
    seen = watch([*PMDKIT, *filled], tmp_path)
    assert seen.code == 0, seen.told
    assert len(seen.processes) >= processes
    assert seen.elsewhere() == []
    assert seen.listening == set()


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


@pytest.mark.parametrize("told", PLANTED)
def test_what_is_watched_for_is_seen(told, tmp_path):
    """Also in a child of a child, with an environment that was cut down. Nothing is sent: the hook refuses it."""
    code = f"import socket, time, urllib.request\n{PLANTED[told]}"
    cut = "{'PYTHONPATH': os.environ['PYTHONPATH']}"
    inner = f"import os, subprocess, sys\nsubprocess.run([sys.executable, '-c', {code!r}], env={cut})"
    seen = watch([sys.executable, "-c", inner], tmp_path)
    assert any(line.startswith(told) for line in seen.elsewhere()), seen


def test_addresses_of_proc_are_read_right():
    assert address("0100007F:1F90") == "127.0.0.1 8080"
    assert address("00000000000000000000000001000000:0050") == "::1 80"
    assert loopback("127.9.9.9 1")
    assert loopback("::ffff:127.0.0.1 1")
    assert not loopback(":: 1")
    assert not loopback("192.0.2.1")
    assert not loopback("example.org")


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
