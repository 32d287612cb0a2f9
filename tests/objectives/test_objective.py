"""The level of a loss is measured, once for objectives that are equal."""

from dataclasses import dataclass, field
from typing import ClassVar

from pmdkit.objectives import PMDMean, traits


@dataclass(frozen=True)
class Unstated:
    """Counts how often its loss is asked for; the level depends on an option."""

    asked: list = field(default_factory=list, compare=False)
    per_token: bool = False
    norm: ClassVar[str] = "none"

    def advantage(self, groups):
        return groups.reward

    def loss(self, batch):
        self.asked.append(batch.logp.shape)
        loss = -batch.advantage[:, None] * batch.log_ratio
        return loss if self.per_token else loss.sum(1)


def test_a_level_is_measured_once_per_objective():
    response, token = Unstated(), Unstated(per_token=True)
    for _ in range(3):
        assert traits(response).level == "response"
        assert traits(token).level == "token"
    assert len(response.asked) == len(token.asked) == 1


def test_the_other_traits_do_not_ask_for_the_loss():
    objective = Unstated(per_token=True, asked=[])
    assert traits(objective).needs_peers
    assert not objective.asked


def test_an_objective_without_a_hash_is_measured_too():
    @dataclass(frozen=True)
    class Unhashable(Unstated):
        weights: list = field(default_factory=list)

    assert traits(Unhashable(per_token=True)).level == "token"


def test_a_subclass_with_a_loss_of_its_own_has_its_own_level():
    class PerToken(PMDMean):
        def loss(self, batch):
            return -batch.advantage[:, None] * batch.log_ratio

    assert (traits(PMDMean()).level, traits(PerToken()).level) == ("response", "token")
