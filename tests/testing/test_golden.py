"""The recorded vectors are the paper's arithmetic, every path gives them, and a wrong path is seen."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from pmdkit.errors import EnvironmentLacks
from pmdkit.objectives import OBJECTIVES, traits
from pmdkit.testing import check_parity, golden
from pmdkit.testing.golden import (
    PATHS,
    REQUIRES,
    TOLERANCE,
    batch_of,
    cases,
    errors,
    groups_of,
    mask_of,
    parity,
    rows_of,
)

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "use" / "golden.md"
FILE = Path(golden.__file__).parent / "vectors.json"
OWN = [name for name in PATHS if name not in golden.ADAPTERS]


def reference() -> Any:
    spec = importlib.util.spec_from_file_location("golden_vectors", HERE.parents[1] / "tools" / "golden_vectors.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_is_recorded_is_what_the_formulas_give():
    module = reference()
    assert FILE.read_text(encoding="utf-8") == module.text(module.make())
    assert FILE.stat().st_size < 200_000


@pytest.fixture
def ours(monkeypatch):
    """The paths of pmdkit itself; the adapters' have tests beside their packages."""
    for name in set(PATHS) - set(OWN):
        monkeypatch.delitem(PATHS, name)


@pytest.mark.slow
def test_every_path_gives_every_vector(ours):
    found = parity()
    assert list(found) == OWN
    assert all(row["max_error"] < 1e-12 for row in found.values()), found
    count = {name: row["cases"] for name, row in found.items()}
    everything, holes = len(cases()), sum("holes" in case["name"] for case in cases())
    levels = [traits(OBJECTIVES[case["objective"]]()).level for case in cases() if "holes" not in case["name"]]
    per_token = levels.count("token")
    assert count["objectives"] == everything
    assert count["toy"] == count["llm-chunked-head"] == everything - holes
    assert count["llm-fused-head"] == everything - holes - per_token
    assert count["bandit-table"] == sum("one-token" in case["name"] for case in cases()) == 6


@pytest.mark.parametrize("what", ["loss", "gradient", "nan"])
@pytest.mark.slow
def test_a_path_that_is_off_is_seen(what):
    def off(case):
        loss, gradient = PATHS["objectives"](case)
        if what == "gradient":
            return loss, [[value + 1e-5 for value in row] for row in gradient]
        return [value + (1e-5 if what == "loss" else float("nan")) for value in loss], gradient

    assert min(errors(off).values()) > TOLERANCE
    with pytest.raises(AssertionError, match=rf"case '.*' is off by .*; 0 of {len(cases())} cases agree"):
        check_parity(off)


def test_an_own_function_may_leave_cases_out():
    def some(case):
        if case["objective"] != "rloo":
            return None
        (loss,), gradient = PATHS["objectives"](case)
        return loss, gradient

    assert check_parity(some)["cases"] == 3
    with pytest.raises(AssertionError, match="returned None for every case"):
        check_parity(lambda case: None)


@pytest.mark.parametrize("case", cases(), ids=lambda case: case["name"])
def test_advantages_and_metrics_are_those_of_pmdkit(case):
    batch, groups = batch_of(case), groups_of(case)
    wanted = torch.tensor(case["advantage"], dtype=torch.float64)
    torch.testing.assert_close(batch.advantage.view(wanted.shape), wanted, atol=1e-12, rtol=0)
    change = torch.where(mask_of(case), rows_of(case, "logp") - rows_of(case, "logp_old"), 0.0).sum(1)
    change = change[groups.present.flatten()]
    assert case["metrics"]["log_ratio_min"] == pytest.approx(change.min().item(), abs=1e-12)
    assert case["metrics"]["log_ratio_max"] == pytest.approx(change.max().item(), abs=1e-12)
    assert case["metrics"]["unscored"] == int((~groups.present).sum())
    mean = groups.reward.where(groups.present, 0.0).sum(1) / groups.present.sum(1)
    assert case["metrics"]["reward_mean"] == pytest.approx(mean.mean().item(), abs=1e-12)


def test_the_example_of_the_page_passes(capsys, monkeypatch):
    """With numpy alone: the code as printed, on the file as shipped."""
    code = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    assert code is not None
    assert "pmdkit" not in code[1]
    monkeypatch.chdir(FILE.parent)
    exec(compile(code[1], str(PAGE), "exec"), {})
    errors_of = [float(line.split()[1]) for line in capsys.readouterr().out.splitlines()]
    assert len(errors_of) == 13
    assert max(errors_of) < 1e-12


def test_the_page_names_every_field():
    page = PAGE.read_text(encoding="utf-8")
    for case in cases():
        for field in (*case, *case["metrics"]):
            assert f"`{field}`" in page, field


def test_a_path_that_cannot_run_here_is_listed_with_what_it_lacks(monkeypatch):
    class Adapter:
        def load(self):
            raise EnvironmentLacks("trl is 0.9; pip install trl==1.16.0")

    monkeypatch.setitem(golden.ADAPTERS, "trl", Adapter())
    monkeypatch.setitem(REQUIRES, "trl", "json")  # a package that is there
    monkeypatch.setitem(REQUIRES, "toy", "a_package_that_nobody_has")
    monkeypatch.setattr(golden, "PATHS", {"objectives": PATHS["objectives"], "toy": PATHS["toy"], "trl": None})
    assert golden.absent() == {
        "toy": "a_package_that_nobody_has is not installed",
        "trl": "trl is 0.9; pip install trl==1.16.0",
    }
    assert list(parity()) == ["objectives"]
