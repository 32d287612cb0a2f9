"""Thirty losses that were solved by hand before the solver was written: none of its answers may be wrong.

`blind/SHA256SUMS` was committed before the solver; `blind/answers.json` says under `about` what its words mean.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from pmdkit.plugins import module_from_file
from pmdkit_lab.explain import TabularPrompt, stationary_point
from tests.nightly import mostly_nightly

BLIND = Path(__file__).parent / "blind"
ANSWERS = json.loads((BLIND / "answers.json").read_text())
CLOSE = 1e-6


@pytest.fixture(scope="module")
def losses():
    return module_from_file(BLIND / "losses.py")


def test_they_are_the_ones_that_were_written_before():
    for line in (BLIND / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split()
        assert hashlib.sha256((BLIND / name).read_bytes()).hexdigest() == digest


def verdict(found, answer):
    """ "right", "open" (nothing is claimed) or what is wrong."""
    if not found["settled"]:
        return "open"
    kind, unique = found["kind"], found["unique"]
    if answer["kind"] == "none":
        return "right" if kind == "unbounded" else f"{kind}, but the loss falls for ever"
    if found["probabilities"] is None:
        return f"{kind}, but there is a best policy"
    pi = np.array(found["probabilities"])
    if len(pi) == 1:
        return "right" if kind in ("minimiser", "constant", "plateau") else f"{kind} of one response"
    if answer["kind"] == "set":
        low, high = np.array(answer["bounds"]).T
        if unique:
            return "unique, but there are many"
        return "right" if np.all(pi > low - CLOSE) and np.all(pi < high + CLOSE) else f"{pi} is not one of the best"
    best = [answer["probabilities"]] if "minima" not in answer else [one["probabilities"] for one in answer["minima"]]
    tied = best[:1] if answer["unique"] else best[:2]
    if min(np.abs(pi - np.array(one)).max() for one in tied) > CLOSE:
        return f"{kind} at {pi.round(6)}, but the best is at {np.round(tied[0], 6)}"
    if unique is not None and unique != answer["unique"]:
        return f"unique is {unique}"
    if (kind == "boundary") != (answer["place"] == "boundary"):
        return f"{kind}, but the best is in the {answer['place']}"
    if answer.get("rest_is_stationary_for_the_value"):
        return "right"  # what is held back is 0 there, and both readings are one
    if (found["descends"] == "gradient") != (answer["kind"] == "rest"):
        return f"descends the {found['descends']}"
    return "right"


@pytest.mark.slow  # 270 problems
@pytest.mark.parametrize("name", mostly_nightly(ANSWERS["losses"], *list(ANSWERS["losses"])[::10]))
def test_no_answer_is_wrong(losses, name, record_property):
    said = {}
    for prompt, answer in ANSWERS["losses"][name]["answers"].items():
        about = ANSWERS["prompts"][prompt]
        problem = TabularPrompt.of(pi=about["pi_old"], reward=about["reward"], length=about["tokens"])
        found = stationary_point(getattr(losses, name)(), problem).to_json(problem)
        said[prompt] = verdict(found, answer)
    record_property("verdicts", json.dumps(said))
    assert {prompt: word for prompt, word in said.items() if word not in ("right", "open")} == {}
