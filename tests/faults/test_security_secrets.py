"""Keys and passwords given to a command do not reach a file of the run, a tracker or an error; ordinary words do."""

import json
import sys

import pytest

from pmdkit.errors import UsageError
from pmdkit.observe import redact, trackers
from pmdkit.observe.redact import BLANK
from pmdkit.observe.run_folder import RunFolder, make_writable

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
    from pmdkit.spec_files import names
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
