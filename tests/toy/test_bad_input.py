"""Bad input to the toy tier: the documented exit code, one sentence that says what to do, nothing lost."""

import pytest

from pmdkit.envs.tokens import make_tokens
from pmdkit.observe.checkpoint import steps

SMALL = ["--prompts", "4", "--group", "4", "--ministeps", "1", "--set", "model.dimension=16", "model.heads=2"]


def one_line(captured, told):
    assert captured.out == ""
    assert captured.err.startswith("pmdkit: error: ")
    assert captured.err.count("\n") == 1
    assert told in captured.err


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
