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
    engine = TransformersEngine(model, [EOS, 5], version=7)
    check_engine(engine, model.state_dict(), [EOS, 5], tolerance=1e-5)
    assert engine.version == 10
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


class Changed(TransformersEngine):
    """What it generates is changed before it is handed out."""

    def generate(self, prompts, group, seeds, sampling, progress=None):
        return self.change(super().generate(prompts, group, seeds, sampling, progress))


class ShiftedLogp(Changed):
    """The log-probability of the next token instead of this one's."""

    def change(self, drawn):
        return replace(drawn, logp=torch.where(drawn.mask, drawn.logp.roll(1, 1), 0.0))


class WrongVersion(Changed):
    def change(self, drawn):
        return replace(drawn, version=drawn.version - 1)


class GapInMask(Changed):
    def change(self, drawn):
        mask = drawn.mask.clone()
        mask[0, 0] = False
        return replace(drawn, mask=mask)


class AlwaysEnded(Changed):
    def change(self, drawn):
        return replace(drawn, ended=torch.ones_like(drawn.ended))


class DoublePrecision(Changed):
    def change(self, drawn):
        return replace(drawn, logp=drawn.logp.double())


class SeedsIgnored(TransformersEngine):
    """Rows draw with their place in the batch."""

    def generate(self, prompts, group, seeds, sampling, progress=None):
        return super().generate(prompts, group, np.arange(len(seeds), dtype=np.uint64), sampling, progress)


class SeedOfTheGroup(TransformersEngine):
    """All rows of a prompt draw with the seed of the first."""

    def generate(self, prompts, group, seeds, sampling, progress=None):
        return super().generate(prompts, group, seeds[::group].repeat(group), sampling, progress)


class OneStream(TransformersEngine):
    """A row's draws depend on how many rows there are."""

    def generate(self, prompts, group, seeds, sampling, progress=None):
        return super().generate(prompts, group, seeds + np.uint64(len(seeds)), sampling, progress)


class NotTwice(TransformersEngine):
    """A call moves the generator of the next."""

    calls = 0

    def generate(self, prompts, group, seeds, sampling, progress=None):
        self.calls += 1
        return super().generate(prompts, group, seeds + np.uint64(self.calls), sampling, progress)


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


class StalePrompts(TransformersEngine):
    """Remembers what the head reads behind a prompt, whatever was published since: a prefix cache."""

    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        self.kept = {}

    def generate(self, prompts, group, seeds, sampling, progress=None):
        from pmdkit.llm.engines import transformers

        kept = self.kept

        class Stale(transformers.RunningBatch):
            def prefill(self, some):
                states = super().prefill(some)
                return kept.setdefault(str(some), states)

        plain, transformers.RunningBatch = transformers.RunningBatch, Stale
        try:
            return super().generate(prompts, group, seeds, sampling, progress)
        finally:
            transformers.RunningBatch = plain


class Silent(TransformersEngine):
    def generate(self, prompts, group, seeds, sampling, progress=None):
        return super().generate(prompts, group, seeds, sampling)


class TooWide(TransformersEngine):
    def generate(self, prompts, group, seeds, sampling, progress=None):
        return super().generate(prompts, group, seeds, replace(sampling, width=sampling.width + 4), progress)


class GreedyIgnored(TransformersEngine):
    def generate(self, prompts, group, seeds, sampling, progress=None):
        return super().generate(prompts, group, seeds, replace(sampling, greedy=False), progress)


class Hot(TransformersEngine):
    """Samples at another temperature than it is asked for."""

    def generate(self, prompts, group, seeds, sampling, progress=None):
        return super().generate(prompts, group, seeds, replace(sampling, temperature=1.1), progress)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (ShiftedLogp, "from sampling and from score differ"),
        (WrongVersion, "responses have version"),
        (GapInMask, "mask has gaps"),
        (AlwaysEnded, "has ended=True"),
        (DoublePrecision, "logp has dtype"),
        (SeedsIgnored, "different seeds give the same"),
        (SeedOfTheGroup, "responses to prompt 0 are equal"),
        (OneStream, "a row changes with"),
        (NotTwice, "the same call gives different"),
        (WeightsIgnored, "the old weights after publish"),
        (VersionIgnored, "version is 0 after publishing version 1"),
        (StaleResponses, "from sampling and from score differ by .* after publish"),
        (StalePrompts, "from sampling and from score differ by .* after publish"),
        (Silent, "progress was not called"),
        (TooWide, "the budget is 12"),
        (GreedyIgnored, "greedy responses"),
        (Hot, "from sampling and from score differ"),
    ],
)
def test_a_broken_engine_is_caught(broken, sentence):
    model = build("qwen2")
    with pytest.raises(AssertionError, match=sentence):
        check_engine(broken(model, EOS), model.state_dict(), EOS)
