"""`certify`: planted slips are named, and nothing right is accused. The slips are written here without pmdkit."""

import json

import pytest
import torch

from pmdkit.objectives import OBJECTIVES, PMDMean, PMDToken
from pmdkit_lab.certify import certify

TAU = 0.1


def centred(reward, own=False):
    size = reward.shape[1]
    mean = reward.mean(1, keepdim=True)
    return ((reward - mean) * (1 if own else size / (size - 1))).flatten()


def standard(reward, constant=0.0, correction=1):
    deviation = reward - reward.mean(1, keepdim=True)
    return (deviation / (reward.std(1, keepdim=True, correction=correction) + constant)).flatten()


def log_partition(reward, own):
    rows = (reward / TAU).exp()
    size = reward.shape[1]
    mean = rows.mean(1, keepdim=True) if own else (rows.sum(1, keepdim=True) - rows) / (size - 1)
    return (reward - TAU * mean.log()).flatten()


def pmd(advantage, s, length, tau=TAU):
    return ((advantage - tau * s) ** 2 / (2 * tau) / length).mean()


def square(make):
    """A PMD regression: `make(advantage, s, length, case)` with the leave-one-out mean and the sum over tokens."""

    def loss(logp, old, reward, mask):
        s = ((logp - old) * mask).sum(1)
        return make(centred(reward), s, mask.sum(1), (logp, old, reward, mask))

    return loss


def clipped(advantage, ratio):
    return torch.minimum(ratio * advantage[:, None], ratio.clamp(0.8, 1.2) * advantage[:, None])


def grpo(make):
    """A clipped loss: `make(ratio, mask, reward)`, and the mean over tokens, then over responses."""

    def loss(logp, old, reward, mask):
        gain = make((logp - old).exp(), mask, reward)
        return -((gain * mask).sum(1) / mask.sum(1)).mean()

    return loss


RIGHT = {
    "pmd-mean": square(lambda a, s, n, case: pmd(a, s, n)),
    "pmd-part": square(lambda a, s, n, case: pmd(log_partition(case[2], own=False), s, n)),
    "rloo": square(lambda a, s, n, case: -(a * (case[0] * case[3]).sum(1) / n).mean()),
    "grpo": grpo(lambda ratio, mask, reward: clipped(standard(reward, correction=0), ratio)),
}
# What is planted: the objective, options and words of which one must be in the verdict.
SLIPS = {
    "sign": (square(lambda a, s, n, case: -pmd(a, s, n)), "pmd-mean", "the sign is wrong"),
    "padded width": (square(lambda a, s, n, case: pmd(a, s, case[3].shape[1])), "pmd-mean", "the padded width"),
    "longest": (square(lambda a, s, n, case: pmd(a, s, n.max())), "pmd-mean", "the longest response"),
    "sum of responses": (square(lambda a, s, n, case: len(n) * pmd(a, s, n)), "pmd-mean", "sum over the responses"),
    "sum of prompts": (square(lambda a, s, n, case: len(case[2]) * pmd(a, s, n)), "pmd-mean", "sum over the prompts"),
    "no baseline": (square(lambda a, s, n, case: pmd(case[2].flatten(), s, n)), "pmd-mean", "there is no baseline"),
    "mean of the batch": (
        square(lambda a, s, n, case: pmd((case[2] - case[2].mean()).flatten(), s, n)),
        "pmd-mean",
        "the mean of the batch",
    ),
    "no tau": (square(lambda a, s, n, case: ((a - s) ** 2 / 2 / n).mean()), "pmd-mean", "as if it were 1"),
    "tau twice": (square(lambda a, s, n, case: ((-a * s + TAU * s**2) / n).mean()), "pmd-mean", "tau counts twice"),
    "divided by tau": (square(lambda a, s, n, case: pmd(a, s, n) / TAU), "pmd-mean", "divided by tau"),
    "ratio reversed": (square(lambda a, s, n, case: pmd(a, -s, n)), "pmd-mean", "wrong sign"),
    "per token": (
        square(
            lambda a, s, n, case: (
                (((a[:, None] - TAU * (case[0] - case[1])) ** 2 / (2 * TAU) * case[3]).sum(1) / n).mean()
            )
        ),
        "pmd-score",
        "norm=length",
    ),
    "mask forgotten": (
        lambda logp, old, reward, mask: pmd(centred(reward), (logp - old).sum(1), logp.shape[1]),
        "pmd-mean",
        "padding counts",
    ),
    "detached": (square(lambda a, s, n, case: pmd(a, s.detach(), n) + 0 * case[0].sum()), "", "no gradient"),
    "own draw": (square(lambda a, s, n, case: pmd(centred(case[2], own=True), s, n)), "pmd-mean", "baseline=mean"),
    "own draw in Z": (
        square(lambda a, s, n, case: pmd(log_partition(case[2], own=True), s, n)),
        "pmd-part",
        "baseline=mean",
    ),
    "no half": (square(lambda a, s, n, case: 2 * pmd(a, s, n)), "pmd-mean", "scale=paper"),
    "sample std": (
        grpo(lambda ratio, mask, reward: clipped(standard(reward), ratio)),
        "grpo",
        "std=sample",
    ),
    "constant in the std": (
        grpo(lambda ratio, mask, reward: clipped(standard(reward, 1e-4), ratio)),
        "grpo",
        "0.0001 is added to the sample std",
    ),
    "std of the batch": (
        grpo(lambda ratio, mask, r: clipped(((r - r.mean()) / r.std(correction=0)).flatten(), ratio)),
        "reinforce-pp",
        "this is reinforce-pp",
    ),
    "no minimum": (
        grpo(lambda ratio, mask, reward: ratio.clamp(0.8, 1.2) * standard(reward, correction=0)[:, None]),
        "rec",
        "two-side",
    ),
    "ratio of the response": (
        lambda logp, old, reward, mask: (
            -clipped(standard(reward, correction=0), ((logp - old) * mask).sum(1).exp()[:, None]).mean()
        ),
        "grpo",
        "per response",
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", RIGHT)
def test_a_loss_written_by_hand_is_what_it_is(name):
    verdict = certify(RIGHT[name], TAU)
    assert (verdict.name, verdict.options, verdict.slips) == (name, {}, ())
    assert verdict.same_value


@pytest.mark.slow
@pytest.mark.parametrize("slip", SLIPS)
def test_planted_slips_are_named(slip):
    loss, name, words = SLIPS[slip]
    verdict = certify(loss, TAU)
    assert verdict.error < 1e-7
    assert verdict.name == name
    assert words in verdict.sentence()
    assert bool(verdict.slips) != ("=" in words or "this is" in words)


@pytest.mark.slow
@pytest.mark.parametrize("name", OBJECTIVES)
def test_no_objective_is_accused(name):
    kind = OBJECTIVES[name]
    verdict = certify(kind(tau=TAU) if "tau" in kind.__dataclass_fields__ else kind(), TAU)
    assert verdict.right
    assert verdict.name == name or verdict.error < 1e-12


@pytest.mark.slow
def test_what_is_nothing_here_is_called_that():
    def odd(logp, old, reward, mask):
        return (((logp - old) * mask).sum(1) ** 3 * centred(reward)).mean()

    verdict = certify(odd, TAU)
    assert not verdict.right
    assert "no objective here" in verdict.sentence()
    assert certify(PMDMean(tau=0.5), 0.5).right, "where 2 tau is 1, a constant of 1 is still none"
    wide = certify(PMDToken(tau=TAU, clip_low=0.1, clip_high=0.1), TAU, clip_low=0.1, clip_high=0.1)
    assert (wide.name, wide.right) == ("pmd-token", True)


@pytest.mark.parametrize(("name", "value"), [("loss", "(logp - old) * mask"), ("loss", "3.0"), ("los", "3.0")])
def test_what_cannot_be_certified_is_bad_input(name, value, tmp_path, call, capsys):
    (tmp_path / "my.py").write_text(f"def {name}(logp, old, reward, mask):\n    return {value}")
    assert call("certify", f"{tmp_path / 'my.py'}:loss") == 2
    assert "\n" not in capsys.readouterr().err.strip()


@pytest.mark.slow
def test_an_objective_is_asked_at_its_own_temperature(tmp_path, call, capsys):
    assert call("certify", "pmd-mean") == 0
    (tmp_path / "my.py").write_text(
        "from dataclasses import dataclass\n"
        "from pmdkit.objectives import PMDMean\n"
        "@dataclass(frozen=True)\n"
        "class Mine(PMDMean):\n"
        "    tau: float = 0.3\n"
        "    def loss(self, batch):\n"
        "        return -super().loss(batch)\n"
    )
    capsys.readouterr()
    assert call("certify", f"{tmp_path / 'my.py'}:Mine") == 4
    assert "pmd-mean, but the sign is wrong" in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_prints_one_value_and_ends_with_4_where_something_differs(tmp_path, call, capsys):
    (tmp_path / "my.py").write_text(
        "def loss(logp, old, reward, mask):\n"
        "    advantage = (reward - reward.mean(1, keepdim=True)).flatten()\n"
        "    return -(advantage * (logp * mask).sum(1)).mean()\n"
    )
    assert call("certify", f"{tmp_path / 'my.py'}:loss", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["right"], told["slips"]) == (True, [])
