"""A recording from elsewhere: whoever can compute a checksum can write anything into it, and what does not fit is
refused before it is replayed."""

from dataclasses import replace

import pytest
import torch

from pmdkit.errors import UsageError
from pmdkit.recording import encode
from pmdkit_lab.dumps.recorded import decode, open_step

TENSORS = {
    "a log-probability above 0": ("logp_old", lambda x: -x),
    "one after the step, too": ("logp_after", lambda x: x + 100),
    "too short a reference": ("logp_ref", lambda x: x[:-1]),
    "too long a reference": ("logp_ref", lambda x: torch.cat([x, x])),
    "sums in place of tokens": ("logp_old", lambda x: x.sum(1)),
    "no rewards": ("reward", lambda x: None),
    "rewards of rows": ("reward", lambda x: x.flatten()),
    "mass below 0": ("mass", lambda x: -x),
    "mass 0": ("mass", lambda x: 0 * x),
    "mass without end": ("mass", lambda x: x / 0),
    "tokens of another vocabulary": ("responses", lambda x: x + 1000),
    "tokens below 0": ("prompts", lambda x: x - 1000),
    "a prompt too few": ("prompts", lambda x: x[1:]),
}
FACTS = {
    "env": 3, "tier": None, "objective": {"tau": 1}, "updates": [{}], "ministeps": 10**6, "sampled": 1, "seed": "x",
    "step": -1, "width": 1.5, "passed": "yes", "vocabulary": "abc", "problems": ["one"], "format": 99,
}  # fmt: skip


@pytest.fixture(scope="module")
def recording(toy):
    step = open_step(toy.path)
    return replace(step, tensors=step.tensors | {"logp_ref": step["logp_old"].clone()})


@pytest.mark.parametrize("case", TENSORS)
def test_tensors_that_do_not_fit_are_refused(case, recording):
    name, change = TENSORS[case]
    changed = recording.tensors | {name: change(recording[name])}
    with pytest.raises(UsageError, match="it is not a recording"):
        decode(encode(replace(recording, tensors={k: x for k, x in changed.items() if x is not None})), "it")


@pytest.mark.parametrize("name", FACTS)
def test_facts_of_another_kind_are_refused(name, recording, monkeypatch):
    if name == "format":
        monkeypatch.setattr("pmdkit.recording.RECORDING_FORMAT", FACTS[name])
    with pytest.raises(UsageError, match=r"^it"):
        decode(encode(replace(recording, about=recording.about | {name: FACTS[name]})), "it")
