"""What the witness keeps of a step: the first look at each row, and nothing where looks cannot be told apart."""

from dataclasses import replace

import torch

from pmdkit.learner import Rollouts
from pmdkit.objectives import Groups, PMDMean, coefficient, credit, cut, total
from pmdkit.objectives.traits import traits
from pmdkit.recording.recorder import put_together
from pmdkit.recording.witness import Heard, Witness
from pmdkit.team import Team

P, G, T = 4, 3, 2


def made():
    rng = torch.Generator().manual_seed(0)
    logp = -torch.rand(P * G, T, generator=rng, dtype=torch.float64)
    reward = torch.randint(0, 2, (P, G), generator=rng).double()
    mass = torch.full((P, G), 1 / G, dtype=torch.float64)
    mask = torch.ones(P * G, T, dtype=torch.bool)
    rollouts = Rollouts(torch.arange(P), torch.zeros(P * G, T, dtype=torch.long), logp, mask, mass, True, 0, 0, T)
    return rollouts, credit(PMDMean(), Groups(reward, mass), logp, mask)


def looked(batch, logp):
    return replace(batch, logp=(logp + 0.0).requires_grad_() * 1.0)


def test_it_answers_like_the_objective():
    _, batch = made()
    witness = Witness(PMDMean(tau=0.3))
    assert traits(witness) == traits(PMDMean(tau=0.3))
    assert witness.tau == 0.3
    assert total(witness, batch) == total(PMDMean(tau=0.3), batch)


def test_the_first_look_stays():
    """Two ministeps of two passes: the numbers of the first pass, which are those of the reported loss."""
    rollouts, batch = made()
    witness = Witness(PMDMean())
    wanted = rollouts.logp_old - 0.5
    for part in (slice(0, 2), slice(2, 4)):
        some, rows = cut(batch, part, P, G), slice(part.start * G, part.stop * G)
        total(witness, looked(some, wanted[rows]))
        total(witness, looked(some, wanted[rows] - 7))
    assert torch.equal(witness.seen(rollouts), wanted)
    witness.forget()
    assert witness.seen(rollouts) is None


def test_forward_passes_of_chosen_rows():
    """A ministep in micro-batches, out of order, one row left out: NaN is what no update looked at."""
    rollouts, batch = made()
    witness = Witness(PMDMean())
    some = cut(batch, slice(2, 4), P, G)
    wanted = rollouts.logp_old[6:] - 0.5
    for rows in ([3, 4], [0, 2, 5]):
        with witness.looking_at(rows, some):
            part = some[torch.tensor(rows)]
            coefficient(witness, part)  # its own numbers are no look
            total(witness, looked(part, wanted[torch.tensor(rows)]))
    with witness.looking_at([3], some):  # a second pass over the ministep
        total(witness, looked(some[torch.tensor([3])], wanted[3:4] - 7))
    seen = witness.seen(rollouts)
    assert torch.isnan(seen[:6]).all()
    assert torch.isnan(seen[7]).all()
    kept = torch.tensor([0, 2, 3, 4, 5])
    assert torch.equal(seen[6:][kept], wanted[kept])


def test_a_learner_that_cuts_rows_without_saying_so():
    rollouts, batch = made()
    witness = Witness(PMDMean())
    total(witness, looked(batch[torch.tensor([0, 4, 5])], rollouts.logp_old[:3]))
    assert witness.seen(rollouts) is None


def test_shares_of_a_team_are_put_together():
    rollouts, _ = made()
    mine, other = rollouts.logp_old.sum(1), rollouts.logp_old.sum(1)
    mine, other = mine.clone(), other.clone()
    mine[6:], other[:6] = torch.nan, torch.nan

    class Two(Team):
        size = 2

        def gather(self, tensor):
            return [tensor, torch.tensor([1])] if tensor.dtype == torch.int64 else [tensor, other]

    assert torch.equal(put_together(mine, rollouts, Two()), rollouts.logp_old.sum(1))
    assert torch.equal(put_together(None, rollouts, Two())[6:], other[6:])


def test_the_meter_is_overheard():
    rollouts, _ = made()

    class Learner:
        version = 7

        def logp(self, rollouts):
            return rollouts.logp_old - 1

    heard = Heard(Learner())
    assert heard.version == 7
    assert heard.after is None
    heard.logp(rollouts.part(slice(0, 2)))
    assert torch.equal(heard.after, rollouts.logp_old[:6] - 1)
