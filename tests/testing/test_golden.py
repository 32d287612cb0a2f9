"""The recorded vectors are the paper's arithmetic, every path gives them, and a wrong path is seen."""

import importlib.util
import json
from pathlib import Path

import pytest

from pmdkit.testing import golden
from pmdkit.testing.golden import TOLERANCE, cases, parity
from pmdkit.testing.golden.paths import PATHS

HERE = Path(__file__).parent


def reference():
    spec = importlib.util.spec_from_file_location("golden_reference", HERE / "golden_reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_is_recorded_is_what_the_formulas_give():
    made = reference().make()
    stored = json.loads((Path(golden.__file__).parent / "vectors.json").read_text())
    assert made == stored


def test_every_path_gives_every_vector():
    found = parity()
    assert set(found) == set(PATHS)
    assert all(row["max_error"] < 1e-12 for row in found.values()), found
    assert found["objectives"]["cases"] == found["llm-chunked-head"]["cases"] == len(cases())
    assert 0 < found["table"]["cases"] < len(cases())
    grpo = sum(case["objective"] == "grpo" for case in cases())
    assert found["llm-fused-head"]["cases"] == len(cases()) - grpo


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_a_path_that_is_off_is_seen(what, monkeypatch):
    real = PATHS["objectives"]

    def off(case):
        loss, gradient = real(case)
        if what == "loss":
            return loss + 1e-5, gradient
        return loss, [[value + 1e-5 for value in row] for row in gradient]

    monkeypatch.setitem(PATHS, "objectives", off)
    assert parity()["objectives"]["max_error"] > TOLERANCE


def test_gradients_are_derivatives_of_the_losses():
    """By finite differences of the 50-digit losses, so that a slip in the formulas' derivatives is seen too."""
    module = reference()
    for case in cases():
        step = module.mpf(10) ** -20
        for row, tokens in enumerate(case["logp"]):
            moved = [list(map(module.mpf, one)) for one in case["logp"]]
            moved[row][-1] += step
            up, _ = module.compute(case["objective"], case["options"], case["reward"], moved, case["logp_old"])
            here, _ = module.compute(case["objective"], case["options"], case["reward"], case["logp"], case["logp_old"])
            assert float((up - here) / step) == pytest.approx(case["gradient"][row][len(tokens) - 1], abs=1e-12)
