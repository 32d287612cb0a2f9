"""`explain` on every objective, on a user's own file, and on what cannot be asked: one sentence each."""

import json

import numpy as np
import pytest

from pmdkit.errors import UsageError
from pmdkit.objectives import OBJECTIVES, PMDMean
from pmdkit_lab.explain import explain, regulariser_curve, report, stationary_point
from pmdkit_lab.explain.report import headline
from pmdkit_lab.explain.tabular import GRADED_PROMPTS
from tests.nightly import mostly_nightly

KINDS = {
    "pmd-mean": ("minimiser", "kl + chi2", False),
    "pmd-part": ("minimiser", "kl", True),
    "pmd-between": ("minimiser", "kl + chi2", False),
    "rloo": ("unbounded", None, False),
    "grpo": ("plateau", None, False),
    "dr-grpo": ("plateau", None, False),
    "dapo": ("plateau", None, False),
    "gspo": ("plateau", None, False),
    "cispo": ("boundary", None, False),
    "chi2-po": ("minimiser", "other", False),
    "rebel": ("minimiser", "kl", True),
    "tb": ("minimiser", "kl", True),
    "dro": ("minimiser", "kl + chi2", False),
    "pmd-token": ("minimiser", None, False),
    "pmd-score": ("minimiser", "kl + chi2", False),
    "opmd": ("unbounded", None, False),
    "rec": ("plateau", None, False),
    "asymre": ("unbounded", None, False),
    "topr": ("boundary", None, False),
    "grpo-kl": ("minimiser", None, False),
    "sapo": ("boundary", None, False),
    "gmpo": ("plateau", None, False),
    "reinforce-pp": ("plateau", None, False),
}

OWN = '''
from dataclasses import dataclass
import torch
from pmdkit.objectives.batch import expect

@dataclass(frozen=True)
class Good:
    """A quadratic penalty on the log ratio: PMD-mean with its constant left out, and without saying so."""
    tau: float = 0.05
    norm: str = "none"
    def advantage(self, groups):
        return torch.where(groups.present, groups.reward - expect(groups.reward, groups.mass), 0.0)
    def loss(self, batch):
        s = batch.seq_log_ratio
        return -batch.advantage * s + batch.tau / 2 * s**2

class Reduced(Good):
    def loss(self, batch):
        return super().loss(batch).mean()

class NotANumber(Good):
    def loss(self, batch):
        return super().loss(batch) * (batch.seq_log_ratio - 1).log()

class NotANumberInTheGradient(Good):
    def loss(self, batch):
        return super().loss(batch) + (batch.seq_log_ratio**2).sqrt()

class SecretlyWholeGroups(Good):
    def loss(self, batch):
        return (batch.advantage - batch.tau * batch.centred(batch.seq_log_ratio)) ** 2

class AcrossPrompts(Good):
    def loss(self, batch):
        return super().loss(batch) / (1 + batch.seq_log_ratio.pow(2).mean())

class BatchBaseline(Good):
    def advantage(self, groups):
        return groups.reward - groups.reward.mean()

class Detached(Good):
    def loss(self, batch):
        return super().loss(batch).detach()

class Raises(Good):
    def loss(self, batch):
        return batch.rewards

class OnePerPrompt(Good):
    def advantage(self, groups):
        return groups.reward.mean(1)
'''

WRONG = (
    "Reduced", "NotANumber", "NotANumberInTheGradient", "SecretlyWholeGroups", "AcrossPrompts", "BatchBaseline",
    "Detached", "Raises", "OnePerPrompt",
)  # fmt: skip


@pytest.fixture
def own(tmp_path):
    (tmp_path / "my.py").write_text(OWN)
    return tmp_path / "my.py"


# All are settled; what a reward of QRPO or SPPO costs is searched for where ranks jump, five seconds each.
SLOW = {"qrpo", "sppo"}
UNSETTLED = {"bapo", "flowrl"}  # a factor without gradient jumps, or moves, with the ratios of the whole group
# A change waits for one objective of each kind, and for one that is not in closed form.
SOME = ("pmd-mean", "pmd-part", "rloo", "grpo", "cispo", "chi2-po")


@pytest.fixture(scope="module", params=mostly_nightly(["some", "all"], "some"))
def explained(request):
    return {name: explain(name) for name in (SOME if request.param == "some" else KINDS)}


def test_every_objective_is_asked():
    assert KINDS.keys() == OBJECTIVES.keys() - SLOW - UNSETTLED
    assert {KINDS[name][0] for name in SOME} == {kind for kind, *_ in KINDS.values()}


@pytest.mark.slow
def test_what_every_objective_solves(explained):
    found = {name: (e.kind, e.regulariser, e.ratio_only) for name, e in explained.items()}
    assert found == {name: KINDS[name] for name in explained}


@pytest.mark.nightly  # five seconds each: what a rank costs has gaps, which are searched
@pytest.mark.parametrize("name", ["qrpo", "sppo"])
def test_ranks_in_place_of_rewards_have_one_minimiser(name):
    told = explain(name)
    assert (told.kind, told.unique) == ("minimiser", True)
    assert {each.certificate.proof for each in told.rests.values()} == {"multiplier"}


@pytest.mark.slow
def test_the_search_agrees_with_the_theory_wherever_there_is_one(explained):
    claimed = {name for name, e in explained.items() if e.theory}
    assert claimed == {"pmd-mean", "pmd-part", "pmd-between", "rebel", "tb", "dro"} & explained.keys()
    for name in claimed:
        e = explained[name]
        assert max(known.error for known in e.theory.values()) < 1e-9
        assert e.lengths is not None
        assert e.lengths.error < 1e-9
        for found in e.rests.values():
            assert found.certificate.residual < 1e-9
            assert found.certificate.curvature > 0
            assert found.unique
            assert found.certificate.rivals == 0


@pytest.mark.slow
def test_one_json_value_with_everything(explained):
    for name, e in explained.items():
        value = json.loads(json.dumps(report.to_json(e), allow_nan=False))
        assert value["name"] == name
        assert value["headline"] == headline(e)
        assert all(solution["settled"] and solution["certificate"]["proof"] for solution in value["solutions"].values())
        assert set(value["eta"]) == {"0.01", "0.1", "0.5", "0.9"}
        assert {"rests", "curves", "force", "first", "steps", "ratios"} <= value.keys()


@pytest.mark.slow
def test_an_objective_of_ones_own(own):
    e = explain(f"{own}:Good", tau=0.1)
    assert (e.name, e.kind, e.regulariser, e.ratio_only) == ("Good", "minimiser", "kl + chi2", False)
    problem = GRADED_PROMPTS["graded rewards"]
    built_in = regulariser_curve(PMDMean(tau=0.1), problem, stationary_point(PMDMean(tau=0.1), problem).log_ratio)
    np.testing.assert_allclose(e.curves["graded rewards"].slope, built_in.slope, atol=1e-10)
    assert not e.theory  # it claims none


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_asked_is_refused(own, name):
    with pytest.raises(UsageError):
        explain(f"{own}:{name}")


def test_options():
    with pytest.raises(ValueError, match="unknown option of grpo 'tau'"):
        explain("grpo", tau=0.1)
    with pytest.raises(ValueError, match="did you mean 'pmd-mean'"):
        explain("pmd-meen")
