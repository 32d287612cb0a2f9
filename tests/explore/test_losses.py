"""The loss landscape: its mathematics in Node against torch, one response at a time. The page: tests/site."""

from dataclasses import fields, replace
from itertools import product

import numpy as np
import pytest
import torch

from pmdkit.objectives import OBJECTIVES, Groups

from .by_torch import SHOWN, TOLERANCE, at
from .in_node import in_node

LOG_RATIOS = [-7.0, -2.1, -0.7, -0.19, -1e-3, 0.0, 2e-4, 0.11, 0.31, 1.3, 2.9, 6.0]  # nats; on no bound of a clip


def settings():
    """Rows with the options of every objective, defaults and others."""
    for name in SHOWN:
        kind = OBJECTIVES[name]
        known = {field.name for field in fields(kind)}
        varied = [{}]
        if "clip_low" in known:
            varied += [{"clip_low": 0.5, "clip_high": 0.1}, {"clip_low": 1.0, "clip_high": 4.0}]
        if "kl_share" in known:
            varied += [{"kl_share": 0.0}, {"kl_share": 1.0}]
        anchors = (0.0, 0.8) if name == "tb" else (0.0,)
        for options, (advantage, tau), length, anchor in product(
            varied, ((0.9, 0.3), (-0.4, 0.05), (-1.7, 2.0)), (1, 300), anchors
        ):
            row = {"advantage": advantage, "tau": tau, "length": length, "group": 5, "anchor": anchor}
            defaults = {key: getattr(kind(), key) for key in ("clip_low", "clip_high", "kl_share") if key in known}
            yield name, row | defaults | options, options


@pytest.fixture(scope="module")
def told(node):
    """Every number of the page's mathematics for every setting."""
    code = """
    const math = await load("objectives.js");
    return given.rows.map(([name, row]) => ({
      names: math.NAMES,
      loss: given.s.map((s) => math.loss(name, s, row)),
      coefficient: given.s.map((s) => math.coefficient(name, s, row)),
      minimum: math.minimum(name, row),
      flat: math.flat(name, row),
    }));
    """
    rows = list(settings())
    return rows, in_node(node, code, {"rows": [(name, row) for name, row, _ in rows], "s": LOG_RATIOS})


def test_every_objective_is_there(told):
    """The page shows its twelve, in the order of OBJECTIVES."""
    assert told[1][0]["names"] == SHOWN == [name for name in OBJECTIVES if name in SHOWN]


@pytest.mark.slow
def test_losses_and_coefficients_are_those_of_torch(told):
    """At every log-ratio, for every objective, option, advantage, temperature and length."""
    for (name, row, options), found in zip(*told, strict=True):
        wanted = [at(name, row, options, s) for s in LOG_RATIOS]
        for column, key in enumerate(("loss", "coefficient")):
            np.testing.assert_allclose(
                found[key], [both[column] for both in wanted], rtol=TOLERANCE, atol=1e-12, err_msg=f"{name} {key} {row}"
            )


@pytest.mark.slow
def test_the_push_turns_round_at_the_minimum_and_nowhere_else(told):
    """By autograd: 0 at the minimum, below 0 before and above 0 after; where there is none, the sign stays."""
    without = set()
    for (name, row, options), found in zip(*told, strict=True):
        place = found["minimum"]
        if place is None:
            signs = {np.sign(at(name, row, options, s)[1]) for s in LOG_RATIOS}
            assert len(signs - {0.0}) <= 1, name
            without.add(name)
            continue
        scale = abs(row["advantage"])
        if name != "chi2-po" or place < 30:  # beyond, its slope is e^30 times a rounding error
            assert abs(at(name, row, options, place)[1]) < 1e-9 * scale * max(1.0, np.exp(place)), name
        assert at(name, row, options, place - 1e-3)[1] < 0 < at(name, row, options, place + 1e-3)[1], name
    # the pure chi2 link has no solution where tau is below the largest negative advantage
    assert without == {"rloo", "grpo", "dr-grpo", "dapo", "gspo", "cispo", "chi2-po"}


def test_flat_zones_have_no_gradient_and_end_where_they_end(told):
    """By autograd: exactly 0 inside, not 0 just outside; objectives without a zone push everywhere but at a minimum."""
    flat = set()
    for (name, row, options), found in zip(*told, strict=True):
        if found["flat"] is None:
            continue
        low, high = (float(value) for value in found["flat"])
        flat.add(name)
        for edge, inward in ((low, 1e-6), (high, -1e-6)):
            if np.isfinite(edge):
                edge, inward = edge, inward * max(1.0, abs(edge))
                assert at(name, row, options, edge + inward)[1] == 0, name
                assert at(name, row, options, edge - inward)[1] != 0, name
    assert flat == {"grpo", "dr-grpo", "dapo", "gspo"}


@pytest.mark.slow
def test_advantages_are_those_of_the_objectives(node):
    """Of a right and a wrong response, for every count of right ones, both reward scales, several sizes and tau."""
    groups = [
        {"size": size, "right": right, "own": own, "rewards": rewards}
        for size in (2, 5, 16)
        for right in range(size + 1)
        for own in (True, False)
        for rewards in ([0, 1], [-1, 1])
    ]
    values = {"dro": ("group", 0.25)}
    cases = [
        (name, group, {"tau": tau, "value": value})
        for name in SHOWN
        for group in groups
        for tau in (0.005, 0.5)
        for value in values.get(name, ("group",))
    ]
    code = """
    const { advantage, exists } = await load("advantages.js");
    return given.map(([name, group, row]) => (exists(group) ? advantage(name, group, row) : null));
    """
    met = 0
    for (name, group, row), found in zip(cases, in_node(node, code, cases), strict=True):
        right, size = group["right"], group["size"]
        if not (right >= 1 if group["own"] else right < size):
            assert found is None
            continue
        objective = OBJECTIVES[name]()
        known = {field.name for field in fields(objective)}
        objective = replace(objective, **{key: value for key, value in row.items() if key in known})
        reward = torch.full((1, size), float(group["rewards"][0]), dtype=torch.float64)
        reward[0, :right] = group["rewards"][1]
        wanted = objective.advantage(Groups(reward, torch.full_like(reward, 1 / size)))[0, 0 if group["own"] else -1]
        np.testing.assert_allclose(found, wanted.item(), rtol=TOLERANCE, atol=1e-12, err_msg=f"{name} {group} {row}")
        met += 1
    assert met > 1500
