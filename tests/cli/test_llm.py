"""`pmdkit llm` on the command line: the plan, the summary, and a recipe of one's own."""

import json
from pathlib import Path

import pytest

from pmdkit.envs.math import make_math
from pmdkit.plugins import Trusted
from pmdkit.specs import LLMSpec
from pmdkit.specs.find import names
from pmdkit.specs.toml import to_toml


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    """A folder with a model, prompts without gold answers, and rewards."""
    from pmdkit.llm.starter.model import build
    from pmdkit.llm.starter.tokenizer import train_tokenizer

    folder = tmp_path_factory.mktemp("mine")
    tokenizer = train_tokenizer(make_math({"kind": "arithmetic", "problems": 300}))
    for name in ("model", "weightless"):
        build("starter", tokenizer, 0).save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    (folder / "weightless" / "model.safetensors").unlink()
    rows = [{"prompt": [*BEFORE, {"role": "user", "content": f"What is {n}?"}], "level": "easy"} for n in range(40)]
    (folder / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "bad.jsonl").write_text(json.dumps({"prompt": "Why?"}) + "\n{}\n[]\n")
    (folder / "why.jsonl").write_text((json.dumps({"problem": "Why?", "answer": "1"}) + "\n") * 40)
    code = "def short(response, prompt, level):\n    assert len(prompt) == 4\n    return 1 / (1 + len(response))\n"
    (folder / "my.py").write_text(code + "def pair(response, gold):\n    return 0\n")
    return folder


BEFORE = [{"role": role, "content": "Be short."} for role in ("system", "user", "assistant")]
OWN = {"--model": "model", "--data": "mine.jsonl", "--reward": "my.py:short"}
SET = {"rollout.width": 8, "rollout.max_prompt": 128, "evaluation.problems": 2, "rollout.record_every": 1}
SET |= {"schedule.steps": 1, "schedule.prompts": 2, "schedule.group": 2}


def own(changes):
    """`pmdkit llm` without a recipe, with some of the options changed."""
    short = {key: changes.pop(key, value) for key, value in OWN.items()}
    return ["llm", *sum(short.items(), ()), "--set", *(f"{key}={value}" for key, value in {**SET, **changes}.items())]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("--data", "none.jsonl"), ("--data", "bad.jsonl"), ("--reward", "my.py:none"), ("--reward", "my.py:pair")),
        *(("--model", "weightless"), ("env.held_out", 40), ("rollout.width", 5000)),
        ("prompt.system", "Think."),  # the data have a system message
        ("starter", "why.jsonl"),  # its teacher adds numbers
    ],
)
def test_a_dry_run_refuses_what_the_run_refuses(call, capsys, mine, monkeypatch, tmp_path, key, value):
    """With the same exit code and the same sentence."""
    monkeypatch.chdir(mine)
    options = ["llm", key, "--data", value] if key == "starter" else own({key: value})
    assert call(*options, "--dry-run") == call(*options, "--out", tmp_path / "run") == 2
    one, other = [line for line in capsys.readouterr().err.splitlines() if line.startswith("pmdkit: error: ")]
    assert one == other


@pytest.mark.slow
def test_a_model_and_data_are_enough(printed, mine, monkeypatch):
    """No recipe and no gold answers: the reward, one's own, takes none. Prompts are conversations, kept whole.

    The recipe that is written is the run's, and a token budget that was given stays.
    """
    monkeypatch.chdir(mine)
    told = printed(*own({"update.token_budget": 4096}), "--json", "--out", "run", "--save-recipe", "mine.toml")
    assert 0 < json.loads(told)["reward_last"] <= 1
    config = json.loads(Path("run/config.json").read_text())
    assert config["update"]["token_budget"] == 4096
    recorded = json.loads(Path("run/rollouts/step-1.jsonl").read_text().splitlines()[0])
    assert (recorded["history"], recorded["answer"]) == (BEFORE, None)
    saved = json.loads(json.dumps(LLMSpec.read("mine.toml", Trusted.of("my.py")).record()))
    assert {**saved, "name": "own", "objective": {}} == {**config, "objective": {}}
    again = json.loads(printed("llm", "mine.toml", "--trust", "my.py", "--json", "--out", "again"))
    assert again["reward_last"] == json.loads(told)["reward_last"]


def test_a_file_takes_the_place_of_generated_problems(printed, tmp_path):
    """In the columns of GSM8K: the answer is on the solution's last line, behind ####. A part is held out."""
    rows = [
        {"question": f"What is {n} * 2?", "answer": f"{n} * 2 = <<{n}*2={n * 2}>>\n#### {n * 2}"} for n in range(40)
    ]
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    told = printed("llm", "smollm2", "--data", tmp_path / "mine.jsonl", "--dry-run", "--json")
    problems = make_math(json.loads(told)["config"]["env"])
    assert (len(problems.train), len(problems.held_out)) == (8, 32)
    assert {problems.problem(n).answer for n in range(40)} == {str(n * 2) for n in range(40)}


def test_every_recipe_can_be_written_and_read(tmp_path):
    """Tables to TOML and back; several rewards are [[reward]] tables again."""
    for name in names("llm"):
        spec = LLMSpec.read(name).override({"reward.others": [{"grade": "my.py:fn", "weight": 0.5, "label": 'a "b"'}]})
        (tmp_path / f"{name}.toml").write_text(to_toml(spec.tables()))
        assert LLMSpec.read(str(tmp_path / f"{name}.toml"), Trusted.of("my.py")) == spec
        assert (tmp_path / f"{name}.toml").read_text().count("[[reward]]") == 2
