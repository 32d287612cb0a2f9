"""The sliders under the counterexamples to the paper: in Node what pmdkit computes, and nothing that agrees."""

import itertools

import numpy as np
import pytest
from generate.counterexamples import COUNTEREXAMPLES

from pmdkit_lab.ledger import claims

from .in_node import in_node


def settings(example):
    """Combinations of the first value, both ends and two values between, of every slider."""
    values = []
    for each in example.sliders:
        between = np.geomspace(each.min, each.max, 4) if each.log else np.linspace(each.min, each.max, 4)
        values.append(sorted({round(v) if each.whole else float(f"{v:.6g}") for v in (*between, each.value)}))
    return [dict(zip(example.start, chosen, strict=True)) for chosen in itertools.product(*values)]


def test_every_disagreement_and_misprint_can_be_moved():
    wanted = {claim["id"] for claim in claims() if claim["verdict"] in ("disagrees", "misprint")}
    assert set(COUNTEREXAMPLES) == wanted


@pytest.mark.parametrize("claim", COUNTEREXAMPLES)
@pytest.mark.slow
def test_the_script_computes_what_pmdkit_does(node, claim):
    example = COUNTEREXAMPLES[claim]
    asked = settings(example)
    code = (
        "const { NUMBERS } = await load('counterexamples.js');"
        "return given.asked.map((values) => NUMBERS[given.claim](values, given.constants));"
    )
    told = in_node(node, code, {"claim": claim, "asked": asked, "constants": dict(example.constants)})
    for values, found in zip(asked, told, strict=True):
        wanted = example.compute(**values)
        assert set(found) == set(wanted) == set(example.rows)
        for key, value in wanted.items():
            assert float(found[key]) == pytest.approx(value, rel=1e-5, abs=1e-12), (values, key)


def test_the_first_settings_are_the_numbers_of_the_ledger():
    """And every counterexample is one: where the ledger says how far off, that is what stands there first."""
    at = {claim: example.compute(**example.start) for claim, example in COUNTEREXAMPLES.items()}
    assert at["prop:tgt_err_clean:a"]["ratio"] == pytest.approx(249, rel=0.01)
    assert at["prop:tgt_err_clean:a"]["chance"] > 1.9e-3
    for claim in ("prop:tgt_err_clean:a", "eq:tgt_err_mean_clean"):
        assert at[claim]["distance"] < at[claim]["limit"]
        assert at[claim]["ratio"] > 10
    assert (at["code:target_clamp"]["formula"], at["code:target_clamp"]["floored"]) == pytest.approx((2, 0.0921))
    halved = at["app:factor_half"]
    assert halved["appendix"] == pytest.approx(halved["twice"], rel=1e-12)
    assert halved["main"] > 0
    gains = at["text:gains"]
    assert (gains["gain24"], gains["gain25"]) == pytest.approx((14.27, 9.27))
    assert (gains["stated24"], gains["stated25"]) == (14.6, 8.1)
    rates = at["remark:exponents"]
    assert rates["mean"] == pytest.approx(rates["mean meant"], rel=0.5)
    assert rates["mean stated"] > 50 > 1 > rates["mean"]
