"""`certify`: planted slips are named, and nothing right is accused. The slips are written here without pmdkit."""

import json
from functools import partial

import pytest
import torch

from pmdkit.errors import UsageError
from pmdkit.objectives import OBJECTIVES, PMDMean, PMDPart, PMDToken
from pmdkit_lab.certify import Verdict, assert_is, certify, certify_kl

TAU = 0.1


def centred(reward, own=False):
    size = reward.shape[1]
    mean = reward.mean(1, keepdim=True)
    return ((reward - mean) * (1 if own else size / (size - 1))).flatten()


def standard(reward, constant=0.0, correction=1):
    deviation = reward - reward.mean(1, keepdim=True)
    std = reward.std(1, keepdim=True, correction=correction)
    return (deviation / torch.where(std > 0, std + constant, 1.0)).flatten()


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
        s = torch.where(mask, logp - old, 0.0).sum(1)
        return make(centred(reward), s, mask.sum(1), (logp, old, reward, mask))

    return loss


def clipped(advantage, ratio):
    return torch.minimum(ratio * advantage[:, None], ratio.clamp(0.8, 1.2) * advantage[:, None])


def bounded(advantage, ratio, low, high):
    return torch.minimum(ratio * advantage[:, None], ratio.clamp(low, high) * advantage[:, None])


def dual(advantage, ratio):
    gain = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
    return torch.where(advantage < 0, torch.maximum(gain, 3 * advantage), gain)


def silent(reward):
    return (reward == reward[:, :1]).all(1, keepdim=True)


def first_columns(case):
    logp, old, _, mask = case
    first = torch.arange(mask.shape[1]) < mask.sum(1)[:, None]
    return torch.where(first, logp - old, 0.0).sum(1)


def grpo(make):
    """A clipped loss: `make(ratio, mask, reward)`, and the mean over tokens, then over responses."""

    def loss(logp, old, reward, mask):
        gain = make(torch.where(mask, logp - old, 0.0).exp(), mask, reward)
        return -(torch.where(mask, gain, 0.0).sum(1) / mask.sum(1)).mean()

    return loss


RIGHT = {
    "pmd-mean": square(lambda a, s, n, case: pmd(a, s, n)),
    "pmd-part": square(lambda a, s, n, case: pmd(log_partition(case[2], own=False), s, n)),
    "rloo": square(lambda a, s, n, case: -(a * torch.where(case[3], case[0], 0.0).sum(1) / n).mean()),
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
                (
                    torch.where(case[3], (a[:, None] - TAU * log_ratio(case[0], case[1], case[3])) ** 2, 0.0).sum(1)
                    / (2 * TAU)
                    / n
                ).mean()
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
    "detached": (square(lambda a, s, n, case: pmd(a, s.detach(), n) + 0 * s.sum()), "", "no gradient"),
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
        "std_constant=0.0001",
    ),
    "std of the batch": (
        grpo(lambda ratio, mask, r: clipped(((r - r.mean()) / r.std(correction=0)).flatten(), ratio)),
        "reinforce-pp",
        "this is reinforce-pp",
    ),
    "no minimum": (
        grpo(lambda ratio, mask, reward: ratio.clamp(0.8, 1.2) * standard(reward, correction=0)[:, None]),
        "grpo",
        "no minimum",
    ),
    "ratio of the response": (
        lambda logp, old, reward, mask: (
            -clipped(
                standard(reward, correction=0), torch.where(mask, logp - old, 0.0).sum(1).exp()[:, None]
            ).mean()
        ),
        "grpo",
        "per response",
    ),
    "a wider clip": (
        grpo(lambda ratio, mask, reward: bounded(standard(reward, correction=0), ratio, 0.8, 1.21)),
        "grpo",
        "clip_high is 0.21, not 0.2",
    ),
    "dual clip": (
        grpo(lambda ratio, mask, reward: dual(standard(reward, correction=0)[:, None], ratio)),
        "grpo",
        "the ratio is bounded at 3",
    ),
    "a clamp": (square(lambda a, s, n, case: pmd(a, s.clamp(-30, 30), n)), "pmd-mean", "clamped at 30 nats"),
    "first columns": (
        square(lambda a, s, n, case: pmd(a, first_columns(case), n)),
        "pmd-mean",
        "first |y| columns",
    ),
    "a product": (
        square(lambda a, s, n, case: pmd(a, ((case[0] - case[1]) * case[3]).sum(1), n)),
        "pmd-mean",
        "NaN off the mask",
    ),
    "rewards in [0, 1]": (
        square(lambda a, s, n, case: pmd(centred(case[2].clamp(0, 1)), s, n)),
        "pmd-mean",
        "the rewards are clamped to [0, 1]",
    ),
    "mean for sum": (square(lambda a, s, n, case: pmd(a, s / n, n)), "pmd-mean", "the mean over its tokens, not"),
    "mean over padding": (
        square(lambda a, s, n, case: pmd(a, s / case[3].shape[1], n)),
        "pmd-mean",
        "averaged over the padded width",
    ),
    "pi_ref": (
        lambda logp, old, reward, mask, logp_ref: RIGHT["pmd-mean"](logp, logp_ref, reward, mask),
        "pmd-mean",
        "pi_ref stands in the place of pi_old",
    ),
    "first column": (
        lambda logp, old, r, mask: (
            -torch.where(mask, clipped(standard(r), torch.where(mask, logp - old, 0.0).exp()), 0.0)[:, 1:].sum()
            / mask[:, 1:].sum()
        ),
        "grpo",
        "norm=tokens), but the first column of the batch is left out",
    ),
    "divided by tau in the pull": (
        square(lambda a, s, n, case: ((a - s / TAU) ** 2 / (2 * TAU) / n).mean()),
        "pmd-mean",
        "the log ratio is divided by tau",
    ),
    "a ratio in RLOO": (
        square(lambda a, s, n, case: -(a * s.exp()).mean()),
        "rloo",
        "this is rloo (norm=none), but it has an importance ratio",
    ),
    "one token late": (
        lambda logp, old, reward, mask: RIGHT["grpo"](logp, old.nan_to_num().roll(1, 1), reward, mask),
        "grpo",
        "logp_old is one token late",
    ),
    "temperature": (
        lambda logp, old, reward, mask: RIGHT["grpo"](logp / 0.8, old, reward, mask),
        "grpo",
        "logp is divided by a temperature of 0.8",
    ),
    "clip in nats": (
        grpo(lambda ratio, mask, r: bounded(standard(r, correction=0), ratio, 0.81873, 1.22140)),
        "grpo",
        "the log ratio is clipped, not the ratio",
    ),
    "ratio squared": (
        grpo(lambda ratio, mask, r: clipped(standard(r, correction=0), ratio) * ratio.detach()),
        "grpo",
        "once more by the detached ratio",
    ),
    "std over the prompts": (
        grpo(lambda ratio, mask, r: clipped(((r - r.mean(0)) / (r.std(0) + 1e-4)).flatten(), ratio)),
        "grpo",
        "over the prompts",
    ),
    "two slips": (
        grpo(lambda ratio, mask, r: clipped(standard(r, 1e-6).roll(-1), ratio) / mask.sum(1, keepdim=True).sqrt()),
        "grpo",
        "next row; each response is divided by the square root",
    ),
    "KL in the reward, attached": (
        lambda logp, old, reward, mask, logp_ref: (
            -(
                centred(reward - 0.05 * log_ratio(logp, logp_ref, mask).sum(1).view(reward.shape))
                * torch.where(mask, logp, 0.0).sum(1)
            ).mean()
        ),
        "rloo",
        "coefficient 0.05) is not detached",
    ),
    "KL over padding": (
        lambda logp, old, reward, mask, logp_ref: (
            RIGHT["grpo"](logp, old, reward, mask) + 0.4 * (k3(logp, logp_ref, mask | True).sum(1) / mask.sum(1)).mean()
        ),
        "grpo",
        "padding counts in the KL term",
    ),
    "raw reward in a silent group": (
        grpo(lambda ratio, mask, r: clipped(standard(r, correction=0) + (r * silent(r)).flatten(), ratio)),
        "grpo",
        "in a group of equal rewards the advantage is its raw reward, not 0",
    ),
    "silent group over a constant": (
        grpo(lambda ratio, mask, r: clipped(standard(r) + ((r - r.mean()) * silent(r) / 1e-6).flatten(), ratio)),
        "grpo",
        "the advantage is the reward minus the mean of the batch, divided by 1e-06: a std of 0",
    ),
    "micro-batches": (
        lambda logp, old, reward, mask: sum(
            -(torch.where(m, clipped(a, torch.where(m, x - y, 0.0).exp()), 0.0).sum() / m.sum() / 2)
            for x, y, m, a in zip(
                *(each.chunk(2) for each in (logp, old, mask, standard(reward, correction=0))), strict=True
            )
        ),
        "grpo",
        "the mean over tokens is taken within each of 2 micro-batches, then over these",
    ),
    "no constant": (
        grpo(lambda ratio, mask, r: clipped(((r - r.mean(1, keepdim=True)) / r.std(1, keepdim=True)).flatten(), ratio)),
        "grpo",
        "gives NaN",
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
    assert bool(verdict.slips) != (("=" in words or "this is" in words) and ", but " not in words)


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
        return (torch.where(mask, logp - old, 0.0).sum(1) ** 3 * centred(reward)).mean()

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


def test_nan_is_never_acquitted():
    """0 times the infinite slope of a root at 0: the value is that of RLOO, the gradient NaN."""

    def nothing(logp):
        return 0 * (logp - logp.detach()).abs().sqrt()

    with pytest.raises(UsageError, match="the gradient of the loss by logp has NaN"):
        certify(lambda logp, old, reward, mask: pmd(centred(reward), logp.sum(1), 1.0) + nothing(logp).sum(), TAU)
    with pytest.raises(UsageError, match="the gradient of the KL term has NaN"):
        certify_kl(lambda logp, ref, mask: log_ratio(logp, ref, mask) + nothing(logp))
    assert "no objective here is this" in Verdict("pmd-mean", {}, (), float("nan"), True).sentence()


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
        "    return -(advantage * logp.where(mask, 0 * logp.detach().nan_to_num()).sum(1)).mean()\n"
    )
    assert call("certify", f"{tmp_path / 'my.py'}:loss", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["right"], told["slips"]) == (True, [])


def test_an_assertion_in_a_test_says_what_differs():
    loss = grpo(lambda ratio, mask, reward: bounded(standard(reward, correction=0), ratio, 0.8, 1.28))
    assert_is(loss, "grpo", clip_high=0.28)
    with pytest.raises(AssertionError, match=r"clip_high is 0\.28, not 0\.2"):
        assert_is(loss, "grpo")
    with pytest.raises(AssertionError, match="norm=length"):
        assert_is(loss, "dapo")


def test_a_loss_is_held_to_what_it_is_meant_to_be(tmp_path, call, capsys):
    """REC without a clip is RLOO with a response's own draw in the mean: right, unless RLOO is meant or promised."""
    body = "(logp, old, reward, mask):\n    return -((reward - reward.mean(1, keepdim=True)).flatten() * "
    body += "logp.where(mask, 0 * logp.detach().nan_to_num()).sum(1)).mean()\n"
    (tmp_path / "my.py").write_text(f"def mine{body}def rloo_loss{body}")
    assert call("certify", f"{tmp_path / 'my.py'}:mine") == 0
    assert "that is rloo (norm=none), but the mean includes a response's own draw" in capsys.readouterr().out
    assert call("certify", f"{tmp_path / 'my.py'}:mine", "--objective", "rloo") == 4
    assert call("certify", f"{tmp_path / 'my.py'}:rloo_loss") == 4
    assert "the mean includes a response's own draw; that is rec" in capsys.readouterr().err


def test_dr_grpo_divides_by_a_constant_length_and_has_no_std():
    def dr_grpo_loss(logp, old, reward, mask, std=False):
        advantage = standard(reward, 1e-4) if std else centred(reward, own=True)
        gain = clipped(advantage, torch.where(mask, logp - old, 0.0).exp())
        return -torch.where(mask, gain, 0.0).sum() / (256 * len(mask))

    verdict = certify(dr_grpo_loss, TAU)
    assert (verdict.right, verdict.same_value) == (True, True)
    assert verdict.sentence() == "this is dr-grpo, with every loss times 0.003906 (a constant length of 256)"

    def by_tokens(logp, old, reward, mask):
        return dr_grpo_loss(logp, old, reward, mask) * 256 * len(mask) / mask.sum()

    assert certify(by_tokens, TAU).right, "an option, where no name is asked for"
    assert "norm=tokens was not asked for" in certify(by_tokens, TAU, ("dr-grpo",)).sentence()
    other = certify(PMDPart(tau=TAU), TAU, ("pmd-mean",))
    assert (other.name, other.slips) == ("pmd-part", ("not pmd-mean",)), "what it is, though another was asked for"
    asked = certify(by_tokens, TAU, ("dr-grpo",), norm="tokens")
    assert (asked.right, asked.called) == (True, "dr-grpo (norm=tokens)")
    rloo = certify(lambda x, old, r, m: -(centred(r) * torch.where(m, x, 0.0).sum(1)).mean(), TAU, ("rloo",))
    assert (rloo.right, rloo.called) == (True, "rloo (norm=none)"), "the formula of its paper"
    left_in = partial(dr_grpo_loss, std=True)
    left_in.__name__ = "dr_grpo_loss"
    assert "but the advantage is divided by the sample std, to which 0.0001 is" in certify(left_in, TAU).sentence()


def test_a_constant_that_frameworks_add_is_an_option():
    loss = grpo(lambda ratio, mask, reward: clipped(standard(reward, 1e-6), ratio))
    assert_is(loss, "grpo", std="sample", std_constant=1e-6)
    with pytest.raises(AssertionError, match="std_constant=1e-06"):
        assert_is(loss, "grpo", std="sample")


def log_ratio(logp, other, mask):
    return torch.where(mask, logp - other, 0.0)


def k3(logp, logp_ref, mask):
    s = log_ratio(logp, logp_ref, mask)
    return torch.expm1(-s) + s


KL_TERMS = {
    "k1": (log_ratio, "gradient 0"),
    "k2": (lambda a, b, m: log_ratio(a, b, m) ** 2 / 2, "the gradient of KL(pi||ref), token by token"),
    "k2 of a response": (lambda a, b, m: log_ratio(a, b, m).sum(1) ** 2 / 2, "the gradient of KL(pi||ref)"),
    "square without 1/2": (
        lambda a, b, m: log_ratio(a, b, m) ** 2,
        "the gradient of KL(pi||ref), token by token, twice",
    ),
    "k3": (k3, "the gradient of KL(ref||pi), token by token"),
    "k3 of the inverse ratio": (lambda a, b, m: k3(b, a, m), "the gradient of 1/2 chi2(pi||ref), token by token"),
    "minus k2": (
        lambda a, b, m: -(log_ratio(a, b, m) ** 2) / 2,
        "the gradient of KL(pi||ref), token by token, sign reversed",
    ),
}


@pytest.mark.parametrize("name", KL_TERMS)
def test_the_expected_gradient_of_a_kl_term_is_named(name):
    term, words = KL_TERMS[name]
    verdict = certify_kl(term)
    assert verdict.loss.startswith(words)
    assert verdict.right == (not verdict.loss.startswith("gradient 0") and "reversed" not in verdict.loss)


def test_the_weighted_k3_of_deepseek_has_the_gradient_of_kl_under_any_draws():
    """E_old[rho k3] = KL(pi || ref) for every pi_old, token by token: so is its gradient, if rho has one too."""
    verdict = certify_kl(lambda a, b, old, m: log_ratio(a, old, m).exp() * k3(a, b, m))
    assert verdict.loss == verdict.off_policy == "the gradient of KL(pi||ref), token by token"
    detached = certify_kl(lambda a, b, old, m: log_ratio(a, old, m).exp().detach() * k3(a, b, m))
    assert detached.off_policy == "the gradient of KL(ref||pi), token by token"
    assert "biased by draws from pi_old" in certify_kl(k3).off_policy
    assert certify_kl(log_ratio).reward == "the gradient of KL(pi||ref)"
