"""vLLM on an accelerator, in the trainer's process: captured graphs, sleep, and weights that reach both. Needs CUDA."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from pmdkit.llm.engines.base import Sampling
from pmdkit.llm.engines.vllm.colocate import ColocatedEngine, make
from pmdkit.llm.logprobs import response_logp
from pmdkit.randomness import generator

from .conftest import Starter, make_starter

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator"),
]
PROMPTS = [[3, 4, 5], [6], [7, 8, 9, 10, 11, 3, 4], [5, 5]]
CLOSE = 0.02  # nats: bfloat16 rounds a logit of some nats by a hundredth; a weight that is left out moves it by nats


def difference(engine: ColocatedEngine, starter: Starter) -> float:
    """Mean over tokens of |engine - trainer|, nats, the trainer in float32 on the CPU."""
    drawn = engine.generate(PROMPTS, 8, seeds(), Sampling(24))
    each = [prompt for prompt in PROMPTS for _ in range(8)]
    rows = [tokens[on].tolist() for tokens, on in zip(drawn.tokens.cpu(), drawn.mask.cpu(), strict=True)]
    with torch.no_grad():
        trainer = torch.cat(response_logp(starter.model, each, rows).rows())
    return float((drawn.logp.cpu()[drawn.mask.cpu()] - trainer).abs().mean())


def seeds() -> np.ndarray:
    return generator(0, "test").integers(0, 2**63, 8 * len(PROMPTS)).astype(np.uint64)


def on_device(starter: Starter) -> dict[str, torch.Tensor]:
    """Its weights as a trainer on the accelerator has them."""
    return {name: weight.cuda() for name, weight in starter.weights().items()}


@pytest.fixture
def engine(starter):
    """With captured graphs (`vllm.eager` is off), beside a trainer that leaves it a fifth of the memory."""
    wanted = starter.wanted(memory=0.2, dtype="bfloat16")
    made = make(replace(wanted, device=torch.device("cuda", 0)))
    yield made
    made.close()


def test_captured_graphs_compute_with_the_weights_of_the_last_publish(engine, starter):
    """A graph replays on the addresses that it was captured with: new weights must arrive there."""
    other = make_starter(seed=1)
    engine.publish(on_device(starter), 1)
    assert difference(engine, starter) < CLOSE
    engine.publish(on_device(other), 2)
    assert difference(engine, other) < CLOSE
    assert difference(engine, starter) > 10 * CLOSE  # else the two would not be told apart


def test_weights_are_whole_after_a_sleep(engine, starter):
    """Level 2 forgets weights and cache and gives their memory to the update."""
    engine.publish(on_device(starter), 1)
    before = difference(engine, starter)
    held = torch.cuda.mem_get_info()[0]
    engine.enter("update")
    assert engine.asleep
    assert torch.cuda.mem_get_info()[0] > held + 2**30  # a fifth of an accelerator is many GiB
    engine.publish(on_device(starter), 2)
    assert difference(engine, starter) == pytest.approx(before, abs=CLOSE)


def test_a_row_depends_on_its_seed_alone(engine, starter):
    """The same call twice: the tokens are the same, and so are their numbers, up to how rows fall together."""
    engine.publish(on_device(starter), 1)
    one, two = (engine.generate(PROMPTS, 8, seeds(), Sampling(24)) for _ in range(2))
    same = (one.tokens == two.tokens).all(1).double().mean()
    assert same > 0.9  # a draw at the border of two tokens may fall to the other one
