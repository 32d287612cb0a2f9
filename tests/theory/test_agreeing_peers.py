"""How often peers say nothing: against all groups written out, against draws, and in its limits."""

import itertools

import numpy as np
import pytest

from pmdkit import theory
from pmdkit.theory.agreeing_peers import noise_share, peers_agree


@pytest.mark.parametrize("tau", [0.01, 0.05, 0.5])
@pytest.mark.parametrize(("p", "n"), [(0.01, 2), (0.05, 5), (0.5, 3), (0.3, 8), (0.97, 6)])
def test_equal_to_all_groups_written_out(tau, p, n):
    """2^n groups with their probabilities, targets by the definition, agreement by looking at the peers."""
    groups = np.array(list(itertools.product((0, 1), repeat=n)))
    weight = np.prod(np.where(groups, p, 1 - p), axis=1)
    agree = np.array([[len(set(np.delete(group, i))) == 1 for i in range(n)] for group in groups])
    np.testing.assert_array_equal(peers_agree(groups), agree)
    best = theory.binary(p, tau, "pmd-part")
    ideal = np.where(groups, best.log_ratio_pos, best.log_ratio_neg)
    error = ((theory.leave_one_out_targets(groups, tau, "pmd-part") - ideal) ** 2).mean(1)
    signal = p * best.log_ratio_pos**2 + (1 - p) * best.log_ratio_neg**2
    share = noise_share(p, n, tau)
    np.testing.assert_allclose(share.response, weight @ agree.mean(1), rtol=1e-12)
    np.testing.assert_allclose(share.touched, weight @ agree.any(1), rtol=1e-12)
    np.testing.assert_allclose(share.silent, weight @ (groups.min(1) == groups.max(1)), rtol=1e-12)
    np.testing.assert_allclose(share.drowned, weight @ (error > signal), rtol=1e-9)


def test_draws_meet_the_shares():
    """20,000 groups of 16 at five pass rates: within 4 standard errors."""
    rng = np.random.default_rng(0)
    for p in (0.01, 0.05, 0.2, 0.5, 0.9):
        agree = peers_agree((rng.random((20_000, 16)) < p).astype(float))
        share = noise_share(p, 16, 0.05)
        for seen, exact in ((agree.any(-1), share.touched), (agree.all(-1), share.silent)):
            assert abs(seen.mean() - exact) <= 4 * np.sqrt(exact * (1 - exact) / 20_000)
        assert abs(agree.mean() - share.response) <= 4 * np.sqrt(share.response / 20_000)


def test_what_agreeing_peers_say_depends_on_neither_p_nor_tau():
    """All wrong: log partition 0, target r/tau. All right: 1/tau, target (r - 1)/tau. Off by log Z or 1/tau - log Z."""
    for tau in (0.005, 0.05, 1.0):
        alone = theory.leave_one_out_targets([1.0, 0.0, 0.0, 0.0], tau, "pmd-part")
        np.testing.assert_allclose(alone[0], 1 / tau, rtol=1e-12)
        np.testing.assert_allclose(
            theory.leave_one_out_targets([0.0, 1.0, 1.0], tau, "pmd-part")[0], -1 / tau, rtol=1e-12
        )
    best = theory.binary(0.01, 0.05, "pmd-part")
    np.testing.assert_allclose(20 - best.log_ratio_pos, 15.39, atol=0.01)


def test_at_the_group_size_of_the_paper():
    """n = 16, tau = 0.05: at p = 0.01 most targets are noise, at p = 0.5 hardly any."""
    hard, easy = noise_share(0.01, 16, 0.05), noise_share(0.5, 16, 0.05)
    np.testing.assert_allclose([hard.response, hard.touched, hard.silent], [0.860, 0.989, 0.851], atol=5e-4)
    np.testing.assert_allclose(hard.drowned, hard.silent, rtol=1e-12)  # drowned are the groups without a success
    assert max(easy.response, easy.drowned) < 1e-4
    assert easy.touched < 1e-3


def test_a_large_tau_drowns_fewer_groups_and_changes_nothing_else():
    small, large = noise_share(0.01, 16, 0.05), noise_share(0.01, 16, 5.0)
    assert (small.response, small.touched, small.silent) == (large.response, large.touched, large.silent)
    assert large.drowned < 0.25 * small.drowned


def test_limits():
    """A prompt never or always solved is all noise; large groups have none."""
    for p in (0.0, 1.0):
        share = noise_share(p, 16, 0.05)
        assert (share.response, share.touched, share.silent) == (1, 1, 1)
        assert share.drowned == 0  # there is nothing to learn, and nothing is asked
    share = noise_share(0.3, 2000, 0.05)
    assert max(share.response, share.touched, share.silent, share.drowned) < 1e-12
    assert noise_share(np.full((3, 1), 0.1), 4, [0.1, 1.0]).drowned.shape == (3, 2)


def test_graded_rewards():
    np.testing.assert_array_equal(peers_agree([0.5, 0.5, 0.2]), [False, False, True])
    np.testing.assert_array_equal(peers_agree([0.1, 0.5, 0.2]), [False] * 3)
    np.testing.assert_array_equal(peers_agree([0.1, 0.5]), [True, True])


def test_bad_input_is_one_sentence():
    with pytest.raises(ValueError, match="n is 1; expected whole numbers >= 2"):
        noise_share(0.1, 1, 0.1)
    with pytest.raises(ValueError, match="p is 2; expected pass rates"):
        noise_share(2.0, 4, 0.1)
