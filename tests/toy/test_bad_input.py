"""Bad input to the toy tier: the documented exit code, one sentence that says what to do, nothing lost."""

import pytest

from pmdkit.envs.tokens import make_tokens
from pmdkit.observe.checkpoint import steps
from pmdkit.toy.hf import save_pretrained
from pmdkit.toy.model import ModelConfig, Transformer

SMALL = ["--prompts", "4", "--group", "4", "--ministeps", "1", "--set", "model.dimension=16", "model.heads=2"]


def one_line(captured, told):
    assert captured.out == ""
    assert captured.err.startswith("pmdkit: error: ")
    assert captured.err.count("\n") == 1
    assert told in captured.err


@pytest.mark.parametrize(
    ("table", "context", "turn"),
    [({"kind": "modular-sum", "modulus": 7}, 16, 0), ({"kind": "modular-sum"}, 2, 0), ({"kind": "modular-sum"}, 16, 1)],
)
def test_a_model_of_another_task(call, tmp_path, capsys, table, context, turn):
    """Another vocabulary, a context that the response does not fit in, or the same words in another order."""
    words = make_tokens(table).vocabulary
    model = Transformer(ModelConfig(len(words), context, 16, 1, 2, 32))
    save_pretrained(model, (*words[turn:-1], *words[:turn], words[-1]), tmp_path / "model")
    before = {p: p.read_bytes() for p in (tmp_path / "model").iterdir()}
    assert call("toy", "modular-sum", "--set", f"model.path={tmp_path / 'model'}", "--out", tmp_path / "run") == 2
    one_line(capsys.readouterr(), "model.path")
    assert before == {p: p.read_bytes() for p in (tmp_path / "model").iterdir()}
    assert not (tmp_path / "run").exists()


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
def test_a_reward_that_is_no_number_stops_the_step_and_loses_nothing(call, tmp_path, capsys, spoil, told):
    """Two good steps, then the user's own judge says NaN: exit 2. Once it is repaired, --resume ends the run."""
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
    assert call(*command, "--out", "run", "--resume", "--accept-changes") == 0
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes().startswith(kept)
