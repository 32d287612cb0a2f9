"""vLLM in the trainer's process takes nothing from it: standard output, random numbers, threads, temporary files."""

import os
import random
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from pmdkit.llm.engines.base import Sampling
from pmdkit.llm.engines.vllm import plugin
from pmdkit.llm.engines.vllm.arguments import set_environment
from pmdkit.llm.engines.vllm.colocate import make
from pmdkit.llm.weights import GatheredWeights

pytestmark = pytest.mark.vllm
SEEDS = np.arange(16, dtype=np.uint64)
PROMPTS = [[3, 4, 5], [6, 7]]

ALONE = """
import os, sys
sys.path.insert(0, os.environ["HERE"])
from conftest import make_starter
import numpy as np
from pmdkit.llm.engines.base import Sampling
from pmdkit.llm.engines.vllm.colocate import make
starter = make_starter()
engine = make(starter.wanted())
engine.publish(starter.weights(), 1)
engine.generate([[3, 4, 5]], 2, np.arange(2, dtype=np.uint64), Sampling(8))
engine.close()
print("{}")
"""


def test_standard_output_stays_ours():
    told = os.environ | {"HERE": str(Path(__file__).parent), "VLLM_LOGGING_LEVEL": "INFO"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ALONE], env=told, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == "{}\n"
    assert "INFO" in done.stderr, "vLLM was to say something"


def test_the_process_is_as_it_was(starter, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    torch.manual_seed(5), np.random.seed(5), random.seed(5)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    threads, setter, group = torch.get_num_threads(), torch.set_num_threads, torch.distributed.is_initialized()
    engine = make(starter.wanted(folder=str(tmp_path)))
    engine.publish(starter.weights(), 1)
    assert torch.equal(torch.get_rng_state(), before[0])  # drawing rows moves it, and no row depends on it
    assert np.random.get_state()[1].tolist() == before[1]
    assert random.getstate() == before[2]
    engine.generate(PROMPTS, 8, SEEDS, Sampling(8))
    engine.close()
    engine.close()
    assert (torch.get_num_threads(), torch.set_num_threads) == (threads, setter)
    assert torch.distributed.is_initialized() == group
    assert not [path.name for path in tmp_path.iterdir() if "pmdkit" in path.name]


def test_rows_are_written_in_a_thread_while_the_trainer_takes_gradients(starter):
    """As with rollout.lag = 1: neither side's numbers move, and a publish waits for the rows."""
    engine = make(starter.wanted())
    try:
        engine.publish(starter.weights(), 1)
        alone = engine.generate(PROMPTS, 8, SEEDS, Sampling(48))
        weight = torch.randn(64, 64, generator=torch.Generator().manual_seed(0), requires_grad=True)
        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(engine.generate, PROMPTS, 8, SEEDS, Sampling(48))
            while not writing.done():
                (gradient,) = torch.autograd.grad((weight @ weight).square().sum(), weight)
                assert torch.is_grad_enabled()
            engine.publish({name: value * 1.1 for name, value in starter.weights().items()}, 2)
            beside = writing.result(timeout=60)
        assert gradient.isfinite().all()
        assert torch.equal(beside.tokens, alone.tokens)
        assert torch.equal(beside.logp, alone.logp)
        assert beside.version == 1
    finally:
        engine.close()


def test_lazy_weights_are_taken(starter):
    """Weights that are put together when they are looked at, as of FSDP2 or adapters."""
    engine = make(starter.wanted())
    try:
        engine.publish(GatheredWeights(starter.weights()), 1)
        one = engine.generate(PROMPTS, 8, SEEDS, Sampling(8))
        engine.publish(starter.weights(), 2)
        assert torch.equal(one.logp, engine.generate(PROMPTS, 8, SEEDS, Sampling(8)).logp)
    finally:
        engine.close()


def test_the_plug_in_registers_once():
    set_environment()
    plugin.register()
    plugin.register()
    from vllm.distributed.weight_transfer import factory

    if hasattr(factory.WeightTransferEngineFactory, "register_engine"):
        assert set(plugin.RECEIVERS) <= set(factory.WeightTransferEngineFactory._registry)


@pytest.mark.parametrize("how", ["cut off", "altered"])
def test_a_file_that_is_spoilt_on_its_way_changes_nothing_and_loses_the_engine(starter, monkeypatch, how):
    """The model keeps its old weights, but what arrived is unknown to the trainer: restart and publish again."""
    from pmdkit.llm.engines.base import EngineLost
    from pmdkit.llm.engines.vllm import colocate

    engine = make(starter.wanted())
    write = colocate.write_weights

    def spoilt(path, *rest):
        written = write(path, *rest)
        data = bytearray(path.read_bytes())
        data[-2] ^= 1
        path.write_bytes(data[:-64] if how == "cut off" else data)
        return written

    try:
        engine.publish(starter.weights(), 1)
        monkeypatch.setattr(colocate, "write_weights", spoilt)
        with pytest.raises(EngineLost, match=how):
            engine.publish(starter.weights(), 2)
        with pytest.raises(EngineLost, match="restart"):
            engine.generate(PROMPTS, 8, SEEDS, Sampling(8))
        monkeypatch.setattr(colocate, "write_weights", write)
        engine.restart()
        engine.publish(starter.weights(), 2)
        assert engine.generate(PROMPTS, 8, SEEDS, Sampling(8)).version == 2
    finally:
        engine.close()
