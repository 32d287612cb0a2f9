"""The contract suite passes on the engine of transformers, and says what is wrong with broken ones."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from pmdkit.llm.engines.transformers import TransformersEngine
from pmdkit.testing import check_engine

from .conftest import EOS, build


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["qwen2", "qwen3-moe", "llama"])
def test_the_embedded_engine_keeps_the_contract(kind):
    model = build(kind)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    engine = TransformersEngine(model, [EOS, 5])
    check_engine(engine, model.state_dict(), [EOS, 5], tolerance=1e-5)
    assert engine.version == 3
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def wrote(change):
    """An engine whose responses are changed on their way out."""

    class Changed(TransformersEngine):
        def generate(self, prompts, group, seeds, sampling, progress=None):
            drawn = super().generate(prompts, group, seeds, sampling, progress)
            return replace(drawn, **change(drawn))

    return Changed


def asked(change):
    """An engine that generates for other seeds, another sampling or without progress: what `change` makes of them."""

    class Misheard(TransformersEngine):
        calls = 0

        def generate(self, prompts, group, seeds, sampling, progress=None):
            self.calls += 1
            given = {"group": group, "seeds": seeds, "sampling": sampling, "progress": progress, "calls": self.calls}
            given |= change(given)
            return super().generate(prompts, group, given["seeds"], given["sampling"], given["progress"])

    return Misheard


def gap(drawn):
    """The mask without its first token."""
    mask = drawn.mask.clone()
    mask[0, 0] = False
    return mask


class WeightsIgnored(TransformersEngine):
    """Takes the version and not the weights."""

    def publish(self, weights, version):
        self.version = version


class VersionIgnored(TransformersEngine):
    def publish(self, weights, version):
        super().publish(weights, version)
        self.version = version - 1


class StaleResponses(TransformersEngine):
    """Remembers what it wrote for the same call, whatever was published since."""

    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        self.seen = {}

    def generate(self, prompts, group, seeds, sampling, progress=None):
        key = str(prompts), seeds.tobytes(), sampling
        if key not in self.seen:
            self.seen[key] = super().generate(prompts, group, seeds, sampling, progress)
        elif progress is not None:
            progress(1, 1)
        return replace(self.seen[key], version=self.version)


SHIFTED = wrote(lambda drawn: {"logp": torch.where(drawn.mask, drawn.logp.roll(1, 1), 0.0)})
BY_PLACE = asked(lambda call: {"seeds": np.arange(len(call["seeds"]), dtype=np.uint64)})
BY_NUMBER = asked(lambda call: {"seeds": call["seeds"] + np.uint64(len(call["seeds"]))})
NOT_TWICE = asked(lambda call: {"seeds": call["seeds"] + np.uint64(call["calls"])})
TOO_WIDE = asked(lambda call: {"sampling": replace(call["sampling"], width=call["sampling"].width + 4)})
NEVER_GREEDY = asked(lambda call: {"sampling": replace(call["sampling"], greedy=False)})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (SHIFTED, "from sampling and from score differ"),
        (wrote(lambda drawn: {"version": drawn.version - 1}), "responses have version"),
        (wrote(lambda drawn: {"mask": gap(drawn)}), "mask has gaps"),
        (wrote(lambda drawn: {"ended": torch.ones_like(drawn.ended)}), "has ended=True"),
        (wrote(lambda drawn: {"logp": drawn.logp.double()}), "logp has dtype"),
        (BY_PLACE, "different seeds give the same"),
        (BY_NUMBER, "a row changes with"),
        (NOT_TWICE, "the same call gives different"),
        (WeightsIgnored, "the old weights after publish"),
        (VersionIgnored, "version is 0 after publishing version 1"),
        (StaleResponses, "from sampling and from score differ by .* after publish"),
        (asked(lambda call: {"progress": None}), "progress was not called"),
        (TOO_WIDE, "the budget is 12"),
        (NEVER_GREEDY, "greedy responses"),
    ],
)
def test_a_broken_engine_is_caught(broken, sentence):
    model = build("qwen2")
    with pytest.raises(AssertionError, match=sentence):
        check_engine(broken(model, EOS), model.state_dict(), EOS)
