"""Bad input to the toy tier: the documented exit code, one sentence that says what to do, nothing lost."""

import json

import pytest

from pmdkit import train
from pmdkit.cli import main
from pmdkit.envs.tokens import make_tokens
from pmdkit.observe.checkpoint import steps
from pmdkit.toy.hf import save_pretrained
from pmdkit.toy.model import ModelConfig, Transformer

SMALL = ["--prompts", "4", "--group", "4", "--ministeps", "1", "--set", "model.dimension=16", "model.heads=2"]


def call(*arguments):
    """Exit code of a command run in this process."""
    try:
        main([str(a) for a in arguments])
    except SystemExit as leave:
        return leave.code or 0
    return 0


def one_line(captured, told):
    assert captured.out == ""
    assert captured.err.startswith("pmdkit: error: ")
    assert captured.err.count("\n") == 1
    assert told in captured.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["modular-sun"], "did you mean 'modular-sum'"),
        (["modular-sum", "--prompts", "0"], "schedule.prompts is 0; expected an integer >= 1"),
        (["modular-sum", "--group", "0"], "schedule.group is 0; expected an integer >= 1"),
        (["modular-sum", "--group", "1"], "schedule.group is 1 with a leave-one-out baseline"),
        (["modular-sum", "--group", "1", "--objective", "rloo"], "raise --group"),
        (["modular-sum", "--ministeps", "129"], "ministeps is 129 for 128 prompts"),
        (["modular-sum", "--set", "model.dimension=30"], "model.dimension is 30 with 2 heads"),
        (["modular-sum", "--set", "model.layers=0"], "layers is 0"),
        (["modular-sum", "--set", "model.heads=0"], "heads is 0"),
        (["modular-sum", "--set", "model.dimention=32"], "did you mean 'model.dimension'"),
        (["modular-sum", "--set", "model.path=nowhere"], "nowhere"),
        (["modular-sum", "--set", "env.modulus=1"], "modulus"),
        (["modular-sum", "--set", "update=exact"], "a transformer is fitted by 'gradient' only"),
        (["modular-sum", "--set", "warm_start.pass_rate=1"], "expected a share from 0"),
        (["modular-sum", "--set", "warm_start.pass_rate=nan"], "pass_rate is nan; expected a finite number"),
        (["modular-sum", "--set", "warm_start.max_steps=0"], "max_steps is 0"),
        (["modular-sum", "--tau", "0"], "tau is 0.0; expected a finite number > 0"),
        (["modular-sum", "--lr", "-1"], "schedule.lr is -1.0"),
        (["copy", "--set", "env.symbols=1"], "symbols"),
        (["copy", "--set", "env.length=0"], "length"),
        (["own.toml"], "own.toml"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(arguments, told, capsys, tmp_path):
    assert call("toy", *arguments, "--out", tmp_path / "run") == 2
    one_line(capsys.readouterr(), told)
    assert not (tmp_path / "run").exists()


def test_responses_too_many_to_enumerate(capsys, tmp_path):
    """A spec of one's own that leaves the group out."""
    (tmp_path / "own.toml").write_text('[env]\nkind = "sort"\n[objective]\nname = "pmd-mean"\ntau = 0.05\n')
    assert call("toy", tmp_path / "own.toml", "--out", tmp_path / "run") == 2
    one_line(capsys.readouterr(), "has too many responses to enumerate; give --group")


def save(folder, table, context, vocabulary=None):
    words = vocabulary or make_tokens(table).vocabulary
    save_pretrained(Transformer(ModelConfig(len(words), context, 16, 1, 2, 32)), words, folder)


@pytest.mark.parametrize(
    ("table", "context", "told"),
    [
        ({"kind": "modular-sum", "modulus": 7}, 16, "has a vocabulary of 8 tokens (0 1 2 3 4 5 ...), the task 11"),
        ({"kind": "modular-sum"}, 2, "reads 2 tokens; this task needs 3 for prompt and response"),
    ],
)
def test_a_model_of_another_task(tmp_path, capsys, table, context, told):
    """Another vocabulary, or a context that the response does not fit in; the model's folder stays as it is."""
    save(tmp_path / "model", table, context)
    before = {p: p.read_bytes() for p in (tmp_path / "model").iterdir()}
    assert call("toy", "modular-sum", "--set", f"model.path={tmp_path / 'model'}", "--out", tmp_path / "run") == 2
    one_line(capsys.readouterr(), told)
    assert before == {p: p.read_bytes() for p in (tmp_path / "model").iterdir()}
    assert not (tmp_path / "run").exists()


def test_a_vocabulary_of_the_same_size_in_another_order(tmp_path, capsys):
    words = make_tokens({"kind": "modular-sum"}).vocabulary
    save(tmp_path / "model", None, 16, (*words[1:10], words[0], words[10]))
    assert call("toy", "modular-sum", "--set", f"model.path={tmp_path / 'model'}", "--out", tmp_path / "run") == 2
    one_line(capsys.readouterr(), "expected the same vocabulary: give a model")


def test_a_damaged_model_folder(tmp_path, capsys):
    save(tmp_path / "model", {"kind": "modular-sum"}, 16)
    file = tmp_path / "model" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:100])
    assert call("toy", "modular-sum", "--set", f"model.path={tmp_path / 'model'}", "--out", tmp_path / "run") == 2
    one_line(capsys.readouterr(), "not a folder that save_pretrained wrote")


OWN = """
from dataclasses import dataclass
import numpy as np
from pmdkit.envs.tokens.tasks import ModularSum

@dataclass(frozen=True)
class Mine(ModularSum):
    def grade(self, prompts, responses, mask):
        reward = super().grade(prompts, responses, mask)
        if responses.shape[0] == len(prompts) * {group} and prompts[0].tolist() == {prompt}:
            {spoil}
        return reward
"""
SPEC = '[env]\nkind = "own.py:Mine"\n[objective]\nname = "pmd-mean"\ntau = 0.05\n[schedule]\nsteps = 5\n'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        ("reward[0, 0] = np.nan", "gave a reward that is NaN or infinite"),
        ("return reward[0]", "gave [4] float64; expected [4, 4] numbers"),
    ],
)
def test_a_reward_that_is_no_number_stops_the_step_and_loses_nothing(tmp_path, capsys, spoil, told):
    """Two good steps, then the user's own judge says NaN: exit 2. Mended, --resume ends the run as if nothing was."""
    from pmdkit.envs.tokens import TokenTask

    prompt = TokenTask(make_tokens({"kind": "modular-sum"}), 4, seed=0).prompts(3)[0].tolist()
    (tmp_path / "own.toml").write_text(SPEC)
    (tmp_path / "own.py").write_text(OWN.format(group=4, prompt=prompt, spoil=spoil))
    command = ["toy", "own.toml", *SMALL, "--seed", "0", "--json", "--trust", "own.py"]
    assert call(*command, "--out", "run") == 2
    one_line(capsys.readouterr(), told)
    assert steps(tmp_path / "run" / "checkpoints") == [1, 2]
    kept = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    assert kept.count(b"\n") == 2
    (tmp_path / "own.py").write_text(OWN.format(group=4, prompt=prompt, spoil="pass"))
    assert call(*command, "--out", "run", "--resume") == 5
    one_line(capsys.readouterr(), "add --accept-changes")
    assert call(*command, "--out", "run", "--resume", "--accept-changes") == 0
    resumed = json.loads(capsys.readouterr().out)
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes().startswith(kept)
    assert call(*command, "--out", "whole") == 0
    whole = json.loads(capsys.readouterr().out)
    assert resumed["pass_rate_last"] == whole["pass_rate_last"]


@pytest.mark.parametrize("spoil", ["return None", "return 'good'", "return reward[0]", "return reward.astype(object)"])
def test_a_reward_of_another_kind_is_named(tmp_path, capsys, spoil):
    """Not an array of numbers [P, G]: the user's mistake, told in a sentence."""
    (tmp_path / "own.toml").write_text(SPEC)
    own = OWN.replace("if responses", "if True or responses").format(group=4, prompt=[0, 0], spoil=spoil)
    (tmp_path / "own.py").write_text(own)
    assert call("toy", "own.toml", *SMALL, "--trust", "own.py", "--json", "--out", "run") == 2
    one_line(capsys.readouterr(), "grade")


def test_a_checkpoint_of_another_run_is_refused(tmp_path, capsys):
    """Another model size, another task of the same name's folder, another objective: exit 5 and nothing changes."""
    out = tmp_path / "run"
    train(
        "pmd-mean",
        "toy",
        "modular-sum",
        steps=2,
        prompts=4,
        group=4,
        ministeps=1,
        out=out,
        options={"model.dimension": 16, "model.heads": 2},
    )
    before = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    more = ["--out", out, "--resume"]
    assert call("toy", "modular-sum", *SMALL[:-3], "--set", "model.dimension=32", "model.heads=2", *more) == 5
    one_line(capsys.readouterr(), "model.dimension was 16 and is now 32")
    assert call("toy", "modular-sum", *SMALL, "--objective", "tb", *more) == 5
    one_line(capsys.readouterr(), "objective.name was pmd-mean and is now tb")
    assert call("toy", "copy", *SMALL, *more) == 5
    one_line(capsys.readouterr(), "holds a run of 'toy modular-sum', not of 'toy copy'")
    assert call("bandit", "needle", *more) == 5
    one_line(capsys.readouterr(), "not of 'bandit needle'")
    assert before == {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}


def test_checkpoints_copied_from_another_run(tmp_path, capsys):
    """Whole files of a model of another size in this run's folder: exit 5, and the files stay."""
    import shutil

    for name, size in (("small", 16), ("large", 32)):
        train(
            "pmd-mean",
            "toy",
            "modular-sum",
            steps=2,
            prompts=4,
            group=4,
            ministeps=1,
            out=tmp_path / name,
            options={"model.dimension": size, "model.heads": 2},
        )
    shutil.rmtree(tmp_path / "small" / "checkpoints")
    shutil.copytree(tmp_path / "large" / "checkpoints", tmp_path / "small" / "checkpoints")
    before = {p: p.read_bytes() for p in (tmp_path / "small" / "checkpoints").rglob("*") if p.is_file()}
    assert call("toy", "modular-sum", *SMALL, "--steps", 4, "--resume", "--json", "--out", tmp_path / "small") == 5
    one_line(capsys.readouterr(), "another")
    assert before == {p: p.read_bytes() for p in (tmp_path / "small" / "checkpoints").rglob("*") if p.is_file()}
    assert call("eval", tmp_path / "small") == 5


def test_a_run_that_diverges_is_exit_6(tmp_path, capsys):
    assert call("toy", "modular-sum", *SMALL, "--lr", "1e30", "--steps", 5, "--json", "--out", tmp_path / "run") == 6
    one_line(capsys.readouterr(), "the last checkpoint is intact")
