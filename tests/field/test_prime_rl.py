"""prime-rl's own hook for a loss, with pmdkit's adapter in it: golden vectors, and what the adapter refuses.

Its source comes from a checkout, see run.sh; without one these are skipped.
"""

import importlib
import sys
from types import SimpleNamespace

import pytest
import torch

from pmdkit.errors import UsageError
from pmdkit.testing.golden import TOLERANCE, errors, groups_of, mask_of, result, rows_of

from .adapters import FIELD, cut, run

pytestmark = pytest.mark.nightly
ADAPTER = "pmdkit_adapters.prime_rl.loss"


@pytest.fixture
def hook(monkeypatch):
    """`hook(**kwargs)`: the loss that prime-rl builds from `[trainer.loss]`, and its `compute_loss`."""
    found = cut(FIELD["hook"])
    if found is None:
        pytest.skip("PrimeIntellect-ai/prime-rl is not here; see tests/field/run.sh")
    assert found[1] == FIELD["hook"]["sha256"], "moved: look again"
    kinds = {name: type(name, (SimpleNamespace,), {}) for name in ("CustomLossConfig", "IPOLossConfig")}
    module = run(found[0], importlib=importlib, **kinds)
    for name in ("prime_rl", "prime_rl.trainer", "prime_rl.trainer.rl", "prime_rl.trainer.rl.loss"):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "pmdkit_adapters.prime_rl", raising=False)

    def built(**kwargs):
        return module.setup_rl_loss_fn(kinds["CustomLossConfig"](import_path=ADAPTER, kwargs=kwargs)), module

    return built


def through(hook, case):
    """Loss and gradient of a recorded case, as a batch of prime-rl; None for one that it cannot express.

    Where a prompt has fewer responses than others, its tokens count as many there, and more in the recorded mean.
    """
    options, own = case["options"], case["objective"] not in ("pmd-mean", "pmd-token")
    if case["norm"] != "tokens" or case["ministeps"] != 1 or any(None in row for row in case["reward"]):
        return None
    if options.get("trust_region") == "m2po" or options.get("baseline") == "log-mean-exp":
        return None
    groups, mask, logp = groups_of(case), mask_of(case), rows_of(case, "logp").requires_grad_()
    tau, group = case["tau"][0] if case["tau"] else None, None if own else groups.reward.shape[1]
    loss, module = hook(objective=case["objective"], tau=tau, group=group, **options)
    advantage = (groups.reward - groups.reward.mean(1, keepdim=True)).flatten()[:, None].expand(mask.shape)
    rows = [list(each) for each in (logp, rows_of(case, "logp_old"), advantage, mask)]
    none = dict.fromkeys(("rl_weights", "ce_weights", "ref_kl_weights"))
    scales = {"rl_scale": int(mask.sum()), "ce_scale": 1, "ref_kl_scale": 1}
    value, metrics = module.compute_loss(rows[0], rows[1], None, *rows[2:], **none, rl_loss_fn=loss, **scales)
    value.backward()
    assert metrics["log_ratio"].shape == mask.shape[:1]
    return result([value.detach()], logp.grad, case)


def test_golden_vectors_through_the_hook(hook):
    found = errors(lambda case: through(hook, case))
    assert {"pmd-mean-tokens", "pmd-token", "pmd-score", "rec", "pmd-token-kpop"} <= found.keys()
    assert max(found.values()) < TOLERANCE


@pytest.mark.parametrize(
    "kwargs",
    [
        {"objective": "pmd-mean", "tau": 0.1},  # without the own draw, and no group
        {"objective": "pmd-mean", "baseline": "mean"},  # no tau
        {"objective": "pmd-mean", "tau": 0.1, "baseline": "mean", "norm": "length"},
        {"objective": "pmd-part", "tau": 0.1, "group": 4},  # needs the rewards
        {"objective": "grpo"},  # divided by the standard deviation
        {"objective": "rebel", "tau": 0.1},  # compares responses
        {"objective": "grpo", "std": "none", "kl_coef": 0.1},
    ],
)
def test_what_prime_rl_cannot_give_is_refused(hook, kwargs):
    loss, module = hook(**kwargs)
    row = torch.full((3,), -1.0, dtype=torch.float64)
    with pytest.raises(UsageError):
        loss(module.LossInputs(row, row, None, row, torch.ones(3, dtype=torch.bool)))


def test_tokens_of_a_response_share_their_advantage(hook):
    loss, module = hook(objective="pmd-mean", tau=0.1, baseline="mean")
    row, mask = torch.full((3,), -1.0, dtype=torch.float64), torch.tensor([True, True, False])
    given = module.LossInputs(row, row, None, torch.tensor([0.5, 0.5, 9.0], dtype=torch.float64), mask)
    assert float(loss(given).loss) == pytest.approx(0.5**2 / (2 * 0.1))
    with pytest.raises(UsageError):
        loss(module.LossInputs(row, row, None, torch.tensor([0.5, 0.4, 0.5]), mask))
