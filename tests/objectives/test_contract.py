"""The public contract suite over the whole dict, each objective under several settings of its options."""

import pytest

from pmdkit.objectives import OBJECTIVES, Contraction, EasyPrompts, PassRate, expect
from pmdkit.objectives.skeleton import MyLoss
from pmdkit.objectives.trust_region import RADIUS
from pmdkit.testing import check_objective

REGIONS = [region for region in RADIUS if region != "none"]
SETTINGS = {
    "pmd-mean": [
        {},
        {"tau": 0.005},
        {"tau": PassRate(), "norm": "tokens"},
        {"tau": Contraction(eta=0.9), "norm": "none"},
        {"baseline": "mean", "norm": "max"},
        {"scale": "paper"},
    ],
    "pmd-part": [
        {},
        {"tau": 0.005, "norm": "none"},
        {"tau": PassRate()},
        {"target_cap": 18.42, "tau": 0.01},
        {"scale": "paper", "norm": "max"},
        {"baseline": "mean", "norm": "none"},
    ],
    "pmd-between": [
        {},
        {"k": 0.0, "tau": 0.005},
        {"k": 1.0, "norm": "none"},
        {"k": 0.3, "tau": PassRate(), "norm": "tokens"},
        {"k": EasyPrompts(switch=0.5), "scale": "paper"},
        {"k": 0.002, "baseline": "mean", "norm": "none"},
    ],
    "rloo": [{}, {"norm": "none"}, {"norm": "max"}, {"norm": "tokens"}],
    "grpo": [
        {},
        {"std": "sample"},
        {"std": "none", "norm": "none"},
        {"clip_low": 1.0, "clip_high": 0.05},
        {"std": "mean"},
    ],
    "dr-grpo": [{}, {"clip_high": 0.3}],
    "dapo": [{}, {"norm": "length"}],
    "gspo": [{}, {"clip_low": 0.2, "clip_high": 0.2, "std": "sample"}, {"norm": "length", "clip_high": 0.1}],
    "cispo": [{}, {"clip_low": 0.1, "clip_high": 0.1}, {"norm": "length", "std": "none"}],
    "chi2-po": [{}, {"kl_share": 1.0}, {"kl_share": 0.0, "tau": 1.5}, {"tau": PassRate(floor=0.2), "norm": "length"}],
    "rebel": [{}, {"tau": 1.0, "norm": "max"}, {"tau": PassRate()}],
    "tb": [{}, {"tau": 1.0, "norm": "max"}, {"tau": PassRate()}],
    "dro": [
        {},
        {"value": 0.5},
        {"value": lambda groups: expect(groups.reward, groups.mass)[:, 0]},
        {"tau": PassRate(), "norm": "length"},
    ],
    "pmd-token": [
        {},
        {"tau": PassRate(), "clip_low": 0.1, "clip_high": 0.2},
        {"baseline": "mean", "norm": "length"},
        *({"trust_region": region, "radius": 0.02, "clip_low": 50.0, "clip_high": 50.0} for region in REGIONS),
    ],
    "pmd-score": [{}, {"tau": PassRate(), "baseline": "loo", "norm": "length"}],
    "qrpo": [{}, {"ties": "weak", "tau": 0.1}, {"tau": PassRate(scale=2.0), "norm": "length"}],
    "sppo": [{}, {"tau": PassRate(), "norm": "length"}],
    "opmd": [{}, {"baseline": "log-mean-exp", "tau": 0.05}, {"tau": PassRate(), "norm": "none"}],
    "rec": [
        {},
        {"clip_mode": "two-side", "importance_sampling": True},
        {"clip_mode": "ring", "clip_low": 0.1, "clip_high": 0.1, "outer_low": 0.15, "outer_high": 0.15},
        {"clip_mode": "none", "norm": "max"},
        *({"trust_region": region, "clip_mode": "none", "importance_sampling": True} for region in REGIONS),
    ],
    "asymre": [{}, {"shift": 0.0, "baseline": "loo"}, {"shift": 0.2, "norm": "tokens"}],
    "topr": [{}, {"baseline": "none", "norm": "none"}],
    "grpo-kl": [{"kl_loss_type": kind, "kl_loss_coef": 0.5} for kind in ("k3", "k2", "corrected-k3")]
    + [{"kl_loss_coef": 0.0}],
    "sapo": [{}, {"tau_pos": 3.0, "tau_neg": 8.0, "std": "none"}, {"norm": "tokens"}],
    "gmpo": [{}, {"clip_low": 0.1, "clip_high": 0.05}, {"norm": "length", "std": "sample"}],
    "reinforce-pp": [
        {},
        {"baseline": "group"},
        {"std": "sample", "norm": "tokens"},
        {"baseline": "group", "std": "none"},
    ],
    "bapo": [{}, {"balance": 3.0, "clip_low": 0.5, "clip_low_least": 0.1, "clip_high_most": 2.0, "norm": "tokens"}],
    "flowrl": [{}, {"weight": "ratio", "tau": 1.0}, {"weight": "none", "std": "none"}],
    "skeleton": [{}, {"tau": PassRate(), "norm": "tokens"}],
}
CASES = [
    pytest.param(name, options, id=f"{name}-{number}", marks=[pytest.mark.slow] if number else [])
    for name, settings in SETTINGS.items()
    for number, options in enumerate(settings)
]
# Which checks do not apply is part of the contract: a trait must not switch off more than it should.
SKIPPED = {
    "pmd-mean": set(),
    "pmd-part": set(),
    "pmd-between": set(),
    "rloo": {"temperature", "population"},
    "grpo": {"temperature", "token order", "coefficient", "unbiased", "population"},
    "dr-grpo": {"temperature", "token order", "coefficient", "unbiased", "population"},
    "dapo": {"temperature", "token order", "coefficient", "unbiased", "population"},
    "gspo": {"temperature", "unbiased", "population"},
    "cispo": {"temperature", "token order", "derivative", "coefficient", "unbiased", "population"},
    "chi2-po": {"population"},
    "rebel": {"unbiased"},
    "tb": {"unbiased"},
    "dro": set(),
    "pmd-token": {"token order", "coefficient", "population"},
    "pmd-score": {"token order", "coefficient", "unbiased", "population"},
    "qrpo": {"unbiased", "population"},
    "sppo": {"population"},
    "opmd": {"first step", "unbiased", "population"},
    "rec": {"temperature", "token order", "coefficient", "unbiased", "population"},
    "asymre": {"temperature", "unbiased", "population"},
    "topr": {"temperature", "population"},
    "grpo-kl": {"temperature", "token order", "coefficient", "unbiased", "population"},
    "sapo": {"temperature", "token order", "coefficient", "unbiased", "population"},
    "gmpo": {"temperature", "token order", "coefficient", "unbiased", "population"},
    "reinforce-pp": {"temperature", "token order", "coefficient", "unbiased", "population"},
    "bapo": {"temperature", "token order", "coefficient", "unbiased", "population"},
    "flowrl": {"derivative", "unbiased", "population"},
    "skeleton": set(),
}


def test_every_objective_is_in_the_contract():
    assert {*OBJECTIVES, "skeleton"} == set(SETTINGS) == set(SKIPPED)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_contract(name, options):
    """At its defaults an objective skips the checks that are named for it, and no other."""
    objective = (OBJECTIVES | {"skeleton": MyLoss})[name](**options)
    verdicts, _ = (check_objective(objective, seed) for seed in (0, 1))
    if not options:
        assert {check for check, verdict in verdicts.items() if verdict != "ok"} == SKIPPED[name]
