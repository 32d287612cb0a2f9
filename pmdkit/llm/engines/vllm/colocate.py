"""The engine of rollout.engine = "vllm": a `vllm.LLM` in the trainer's process, on the same accelerator.

Weights arrive by publish only, through vLLM's `reload_weights`. Between a rollout and the next publish the engine
sleeps at level 2: it drops its weights and its cache, which are useless after the update.
"""

import gc
import os
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pmdkit.errors import EnvironmentLacks, PmdkitError, UsageError, explain_out_of_memory, first_line
from pmdkit.llm.engines import base
from pmdkit.llm.engines.base import NO_WEIGHTS, EngineConfig, EngineLost, Phase, Progress, Responses, Sampling, Tokens
from pmdkit.llm.engines.vllm import arguments, check_version, installed_version
from pmdkit.llm.engines.vllm.weight_names import WeightNames
from pmdkit.specs.llm import VLLMTable

PROGRESS_SECONDS = 0.1  # between calls of progress


class ColocatedEngine:
    """An Engine on a `vllm.LLM` in this process.

    With `tensor_parallel` above 1, all processes of one engine make the same calls with the same prompts in the same
    order. Greedy rows have the log-probabilities of temperature 1.

    Attributes:
        version: of the weights last published.
        asleep: memory is given back until the next publish.
        whole: it has weights, all of the same version.
    """

    @staticmethod
    def sleeps(options: VLLMTable) -> bool:
        """Trait: the engine sleeps unless the options disable it."""
        return options.sleep

    @staticmethod
    def in_flight(options: VLLMTable) -> bool:
        """Trait: its steps are taken here, so weights change between two; ranks of one engine would have to agree."""
        return options.tensor_parallel == 1

    @staticmethod
    def span(options: VLLMTable) -> int:
        """Trait: the number of processes that form one engine, its tensor-parallel ranks."""
        return options.tensor_parallel

    @staticmethod
    def check(options: VLLMTable) -> None:
        """Refuse a vLLM that is missing or too old."""
        check_version(installed_version())

    def __init__(self, config: EngineConfig) -> None:
        release = installed_version()
        check_version(release)
        self.config = config
        self.ends = list(config.ends)
        self.version = NO_WEIGHTS
        self.names = WeightNames(config.model.config)
        self.vocabulary = config.model.config.get_text_config().vocab_size
        self.calls = 0
        self.latest: dict[str, Any] = {}  # newest output of each request, until its caller takes it
        self.asleep = self.whole = False
        self.owns_group = not torch.distributed.is_initialized()
        self.threads = torch.get_num_threads()
        arguments.set_environment()
        with tempfile.TemporaryDirectory(prefix="pmdkit-vllm-") as name:
            folder = Path(name)
            keywords = arguments.llm_arguments(config, folder)
            arguments.write_folder(folder, config, self.names.architecture, keywords["max_model_len"])
            self.llm: Any = start_vllm(keywords, self.names.architecture, str(release), self.owns_group)

    def generate(
        self,
        prompts: Sequence[Tokens],
        group: int,
        seeds: np.ndarray,
        sampling: Sampling,
        progress: Progress | None = None,
    ) -> Responses:
        """`group` responses to each of P prompts; a row depends on its prompt and its own entry of seeds [P * group].

        Other rows in the batch change log-probabilities by rounding only. If `progress` raises, unfinished rows are
        aborted and the engine can be used again. Where it publishes other weights (`rollout.in_flight`), they draw the
        next token of each row.
        """
        base.check_request(prompts, group, seeds, self.vocabulary)
        self.check_ready(max(len(prompt) for prompt in prompts) + sampling.width)
        from vllm import SamplingParams

        how = arguments.sampling_arguments(sampling, self.ends) | self.request_defaults()
        params = [SamplingParams(**how, seed=int(seed) % arguments.MAX_SEED) for seed in seeds]
        each = [prompt for prompt in prompts for _ in range(group)]
        first, rows, drawn_by = self.version, [], []
        for output in self.run_requests(each, params, progress):
            row = output.outputs[0]
            rows.append((list(row.token_ids), token_logps(row.token_ids, row.logprobs)))
            drawn_by += token_versions(row, first)
        responses = Responses.from_rows(rows, self.ends, first)
        if not self.config.rollout.in_flight:
            if set(drawn_by) != {first}:
                raise EngineLost(f"rows were written by weights of versions {set(drawn_by)}; expected {first} alone")
            return responses
        versions = responses.mask.int().masked_scatter_(responses.mask, torch.tensor(drawn_by, dtype=torch.int32))
        return replace(responses, versions=versions)

    def score(self, prompts: Sequence[Tokens], responses: Sequence[Tokens]) -> list[torch.Tensor]:
        """[T_n] float32 log-probabilities of the tokens of N responses, each to its own prompt, at temperature 1.

        vLLM does not reuse keys and values of earlier requests when log-probabilities of a prompt are requested.
        """
        if not len(prompts):
            return []
        self.check_ready(max(len(p) + len(r) for p, r in zip(prompts, responses, strict=True)))
        from vllm import SamplingParams

        params = SamplingParams(
            max_tokens=1, temperature=0.0, prompt_logprobs=0, ignore_eos=True, **self.request_defaults()
        )
        rows = [[*prompt, *response] for prompt, response in zip(prompts, responses, strict=True)]
        answers = self.run_requests(rows, [params] * len(rows))
        return [
            torch.tensor(token_logps(response, answer.prompt_logprobs[len(prompt) :]), dtype=torch.float32)
            for prompt, response, answer in zip(prompts, responses, answers, strict=True)
        ]

    def request_defaults(self) -> dict[str, Any]:
        """Settings of all requests: no text, numbers in flat lists, answers at the end, or in flight at each token."""
        from vllm.sampling_params import RequestOutputKind as Kind

        kind = Kind.CUMULATIVE if self.config.rollout.in_flight else Kind.FINAL_ONLY
        return {"detokenize": False, "output_kind": kind, "flat_logprobs": True}

    def run_requests(
        self, prompts: Sequence[Tokens], params: Sequence[Any], progress: Progress | None = None
    ) -> list[Any]:
        """vLLM's outputs, in order. The steps of its engine are taken here, since `LLM.generate` reports nothing.

        A `progress` that publishes also scores, to check the weights: then rows of both calls are written at once, so
        an output is kept for whoever asked.
        """
        engine, self.calls = self.llm.llm_engine, self.calls + 1
        names = [f"{self.calls}-{row}" for row in range(len(prompts))]
        latest, done, reported = self.latest, 0, 0.0
        torch.set_num_threads(self.threads)  # a new thread starts with another number, which affects vLLM's attention
        try:
            for name, prompt, how in zip(names, prompts, params, strict=True):
                engine.add_request(name, {"prompt_token_ids": list(prompt)}, how)
                latest[name] = None
            while done < len(names):
                try:
                    with explain_out_of_memory("rollout", "vllm.memory"):
                        outputs = engine.step()
                except PmdkitError:
                    raise
                except Exception as problem:
                    raise EngineLost(f"vLLM failed while generating: {first_line(problem)}") from problem
                latest.update((output.request_id, output) for output in outputs)
                mine = [output for name in names if (output := latest[name]) is not None]
                done = sum(output.finished for output in mine)
                if done < len(names) and not outputs and not engine.has_unfinished_requests():
                    raise EngineLost(f"vLLM answered {done} of {len(names)} rows")
                if progress is not None and (outputs or time.monotonic() - reported >= PROGRESS_SECONDS):
                    reported = time.monotonic()
                    progress(sum(len(output.outputs[0].token_ids) for output in mine), done)
        finally:
            rows = [latest.pop(name, None) for name in names]
            left = [name for name, row in zip(names, rows, strict=True) if row is None or not row.finished]
            if left:  # `progress` raised
                engine.abort_request(left)
        return rows

    def check_ready(self, tokens: int) -> None:
        """Raise UsageError without weights, or if vLLM would cut short a prompt and response of so many tokens."""
        if not self.whole:
            raise UsageError("the vLLM engine has no weights; publish weights before asking for responses")
        if tokens > self.config.context:
            raise UsageError(
                f"a prompt and its response need {tokens} tokens; the vLLM engine was made for {self.config.context}: "
                "shorten the responses, or leave out long prompts"
            )

    def publish(self, weights: Mapping[str, torch.Tensor], version: int) -> None:
        """Load weights named as in `model.state_dict()`, and their version.

        Tied weights may be given under any of their names. Weights of another model are refused before vLLM is touched;
        if any is not finite, the engine is without weights afterwards.
        """
        stream = self.names.stream(weights, getattr(torch, self.config.dtype))  # one layer at a time, without a copy
        self.whole = False
        try:
            with stdout_to_stderr(), explain_out_of_memory("publish", "vllm.memory"):
                if self.asleep:
                    torch.cuda.empty_cache()  # vLLM's allocator cannot use what the trainer's has cached
                    self.llm.wake_up(tags=["weights"])
                if self.config.device.type == "cpu":
                    self.llm.collective_rpc(rebuild_moe_kernels)
                self.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": stream})
                self.llm.update_weight_version(str(version))
                if self.asleep:
                    torch.cuda.empty_cache()
                    self.llm.wake_up(tags=["kv_cache"])
                rollout, rows = self.config.rollout, bool(self.latest)  # in flight, `progress` publishes
                if rows and rollout.in_flight_cache == "recompute":
                    kept = self.llm.reset_prefix_cache(reset_running_requests=True) is False
                else:
                    kept = self.llm.reset_prefix_cache() is False and not (rows and rollout.in_flight)
        except PmdkitError:
            raise
        except Exception as problem:
            raise EngineLost(f"vLLM failed while loading weights: {first_line(problem)}") from problem
        if kept:
            raise EngineLost("vLLM keeps keys and values of older weights: rows are being written")
        self.version, self.whole, self.asleep = version, True, False

    def enter(self, phase: Phase) -> None:
        """Prepare for the next phase: memory is given back while the trainer scores and updates."""
        if phase == "update" and self.whole and arguments.sleep_enabled(self.config):
            self.whole, self.version = False, NO_WEIGHTS
            self.llm.sleep(level=2)
            self.asleep = True

    def close(self) -> None:
        """Release everything; a second call does no harm."""
        if self.llm is not None:
            shut_down_vllm(self.llm, self.owns_group)
        self.llm, self.whole = None, False
        gc.unfreeze()  # vLLM freezes all objects once it has started
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def rebuild_moe_kernels(worker: Any) -> None:
    """Let vLLM build its MoE kernels again: on a CPU experts are packed when a kernel is built, not on a reload.

    Without this a reload fails on the padded size or, where nothing is padded, leaves the weights in another order.
    """
    for module in worker.model_runner.get_model().modules():
        method = getattr(module, "quant_method", None)
        if method is not None and getattr(method, "moe_kernel", None) is not None:
            method.moe_kernel = None


def token_versions(row: Any, first: int) -> list[int]:
    """The version of the weights that drew each token of a row, from vLLM's spans; `first` where it gives none."""
    spans = getattr(row, "weight_versions", None) or ()
    return [int(span.version) for span in spans for _ in range(span.start, span.end)] or [first] * len(row.token_ids)


def token_logps(tokens: Sequence[int], found: Any) -> list[float]:
    """Log-probabilities of one row's tokens, from vLLM's output."""
    if found is None or len(found) != len(tokens):
        raise EngineLost(f"vLLM answers with {len(tokens)} tokens and not as many log-probabilities")
    if getattr(found, "token_ids", None) == list(tokens):  # flat, with no other token's: the usual case
        return list(found.logprobs)
    return [entry[token].logprob for entry, token in zip(found, tokens, strict=True)]


# Start and shut down vLLM without side effects: the trainer's random state, threads, process group and stdout stay.


def start_vllm(options: dict[str, Any], architecture: str, version: str, owns_group: bool) -> Any:
    """Start a `vllm.LLM` with these arguments for a class of transformers; `owns_group`: see `shut_down_vllm`."""
    with stdout_to_stderr(), preserve_globals():
        try:
            from vllm import LLM, ModelRegistry
        except (ImportError, OSError) as problem:
            raise EnvironmentLacks(f"vLLM {version} does not load: {first_line(problem)}; reinstall it") from problem
        if architecture not in ModelRegistry.get_supported_archs():
            raise UsageError(
                f"vLLM {version} cannot serve a {architecture}; take rollout.engine = 'transformers', or a model of "
                "another architecture"
            )
        try:
            return LLM(**options)
        except (TypeError, ValueError, RuntimeError, NotImplementedError, AssertionError, OSError) as problem:
            destroy_groups(owns_group)
            raise EnvironmentLacks(
                f"vLLM {version} does not start with a {architecture}: {first_line(problem)}; see [vllm] for its "
                "memory and options, or take rollout.engine = 'transformers'"
            ) from problem


def shut_down_vllm(llm: Any, owns_group: bool) -> None:
    """Free everything. `owns_group`: torch's process group was made by vLLM, not by the trainer.

    This is done part by part: vLLM's own shutdown, which its finalizer would also call, destroys the trainer's process
    group as well.
    """
    with stdout_to_stderr():
        client = llm.llm_engine.engine_core
        finalizer = getattr(client, "_finalizer", None)
        if finalizer is not None:
            finalizer.detach()
        core = client.engine_core
        core.structured_output_manager.clear_backend()
        core.model_executor.shutdown()
        core.scheduler.shutdown()
        destroy_groups(owns_group)


def destroy_groups(owns_group: bool) -> None:
    """Leave vLLM's process groups, and torch's default one where vLLM made it."""
    from vllm.distributed import parallel_state

    parallel_state.destroy_model_parallel()
    if owns_group:
        parallel_state.destroy_distributed_environment()
    elif parallel_state._WORLD is not None:
        parallel_state._WORLD.destroy()
        parallel_state._WORLD = None


@contextmanager
def preserve_globals() -> Iterator[None]:
    """Preserve the global random states and `torch.set_num_threads`: vLLM seeds the former and disables the latter.

    Warnings are ignored: those among vLLM's own parts do not concern the user.
    """
    kept, numbers, threads = random.getstate(), np.random.get_state(), torch.set_num_threads
    count = torch.get_num_threads()
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            random.setstate(kept)
            np.random.set_state(numbers)
            torch.set_num_threads = threads
            torch.set_num_threads(count)


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Redirect file descriptor 1 to 2 inside the block, for all writes of this process, from any thread.

    Standard output is for our own data, but vLLM and its C++ parts print there.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        with suppress(ValueError):  # a stream that a test runner closed
            sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
