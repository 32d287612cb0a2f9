"""vLLM on an accelerator, in the trainer's process: captured graphs, sleep, and weights that reach both. Needs CUDA."""

from dataclasses import replace

import pytest
import torch

from pmdkit.llm.engines.base import Sampling
from pmdkit.llm.engines.vllm.colocate import ColocatedEngine

from .conftest import Starter, make_starter
from .test_colocate import PROMPTS, difference, seeds

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator"),
]
CLOSE = 0.02  # nats: bfloat16 rounds a logit of some nats by a hundredth; a weight that is left out moves it by nats


def on_device(starter: Starter) -> dict[str, torch.Tensor]:
    """Its weights as a trainer on the accelerator has them."""
    return {name: weight.cuda() for name, weight in starter.weights().items()}


@pytest.fixture(scope="module")  # a process can have one vLLM that sleeps
def engine(starter):
    """With captured graphs (`vllm.eager` is off), beside a trainer that leaves it a fifth of the memory."""
    wanted = starter.wanted(memory=0.2, dtype="bfloat16")
    made = ColocatedEngine(replace(wanted, device=torch.device("cuda", 0)))
    yield made
    made.close()


def test_captured_graphs_compute_with_the_weights_of_the_last_publish(engine, starter):
    """A graph replays on the addresses that it was captured with: new weights must arrive there."""
    other = make_starter(seed=1)
    engine.publish(on_device(starter), 1)
    assert difference(engine, starter).mean() < CLOSE
    engine.publish(on_device(other), 2)
    assert difference(engine, other).mean() < CLOSE
    assert difference(engine, starter).mean() > 10 * CLOSE  # else the two would not be told apart


def test_weights_are_whole_after_a_sleep(engine, starter):
    """Level 2 forgets weights and cache and gives their memory to the update."""
    engine.publish(on_device(starter), 1)
    before = difference(engine, starter).mean()
    held = torch.cuda.mem_get_info()[0]
    engine.enter("update")
    assert engine.asleep
    assert torch.cuda.mem_get_info()[0] > held + 2**30  # a fifth of an accelerator is many GiB
    engine.publish(on_device(starter), 2)
    assert float(difference(engine, starter).mean()) == pytest.approx(float(before), abs=CLOSE)


def test_a_row_depends_on_its_seed_alone(engine, starter):
    """The same call twice: the tokens are the same, and so are their numbers, up to how rows fall together."""
    engine.publish(on_device(starter), 1)
    one, two = (engine.generate(PROMPTS, 8, seeds(32), Sampling(24)) for _ in range(2))
    same = (one.tokens == two.tokens).all(1).double().mean()
    assert same > 0.9  # a draw at the border of two tokens may fall to the other one
