"""vLLM in the trainer's process: the engine of `rollout.engine = "vllm"`.

Weights arrive by publish only, and rows carry their version. The engine comes first, then its sleep states, then how
vLLM starts and shuts down without side effects on the trainer.
"""

import gc
import os
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock
from typing import Any, Literal

import numpy as np
import torch

from pmdkit.errors import EnvironmentLacks, PmdkitError, UsageError
from pmdkit.llm.engines import base
from pmdkit.llm.engines.base import EngineConfig, EngineLost, Phase, Progress, Responses, Sampling, Tokens
from pmdkit.llm.engines.vllm import arguments, check_version, installed_version, outputs, plugin
from pmdkit.llm.engines.vllm.weights_file import PREFIX, WeightNames, folder_for, write_weights

BACKENDS = {"file": plugin.FILE, "ipc": plugin.TENSORS}
State = Literal["empty", "ready", "asleep", "broken"]
PROGRESS_SECONDS = 0.1  # seconds between calls of progress: counting tokens costs a pass over all rows


def make(config: EngineConfig) -> "ColocatedEngine":
    """The engine of a run."""
    return ColocatedEngine(config)


class ColocatedEngine:
    """An Engine on a `vllm.LLM` in this process.

    Every method may be called from any thread: calls wait for each other, so that weights never change under rows that
    are being generated. The trainer may compute meanwhile. With `tensor_parallel` above 1, all processes of one
    `replica` make the same calls with the same prompts in the same order; with several processes, all of them create,
    restart and close their engines together.

    Greedy rows have the log-probabilities of temperature 1.

    Attributes:
        version: of the weights last published.
        replica: which engine this process belongs to; processes of equal `replica` form one.
        replicas: number of engines.
    """

    def __init__(self, config: EngineConfig) -> None:
        self.release = installed_version()
        check_version(self.release)
        self.config = config
        self.ends = list(config.ends)
        self.version = 0
        self.replica = config.rank // config.vllm.tensor_parallel
        self.replicas = config.size // config.vllm.tensor_parallel
        self.lock = RLock()
        self.on_finished: base.Finished | None = None
        self.names = WeightNames(config.model.config)
        self.vocabulary = config.model.config.get_text_config().vocab_size
        self.backend = arguments.transfer_backend(config)
        self.files = folder_for(config.vllm.folder)
        self.calls = 0
        self.llm: Any = None
        self.start()

    def start(self) -> None:
        """Start vLLM with dummy weights."""
        config = self.config
        arguments.set_environment()
        self.owns_group = not torch.distributed.is_initialized()
        self.threads = torch.get_num_threads()
        with tempfile.TemporaryDirectory(prefix="pmdkit-vllm-") as folder:
            given = arguments.llm_arguments(config, Path(folder))
            arguments.write_folder(
                Path(folder), config.model.config, self.names.architecture, given["max_model_len"], config.tokenizer
            )
            with stdout_to_stderr(), preserve_globals():
                from vllm.config import WeightTransferConfig

                plugin.register()  # the entry point does it too, where pmdkit is installed with its metadata
                # "ipc" is our backend: CUDA's own IPC does not open memory of the same process
                given["weight_transfer_config"] = WeightTransferConfig(backend=BACKENDS[self.backend])
            self.llm = start_vllm(given, self.names.architecture, str(self.release), self.owns_group)
        self.llm.init_weight_transfer_engine({"init_info": {}})
        self.sleep_state = SleepState(self.llm, arguments.sleep_enabled(config))

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
        aborted and the engine can be used again.
        """
        base.check_request(prompts, group, seeds, sampling, self.vocabulary)
        self.check_context(max(len(prompt) for prompt in prompts) + sampling.width)
        from vllm import SamplingParams

        how = {
            "max_tokens": sampling.width,
            "temperature": 0.0 if sampling.greedy else sampling.temperature,
            "top_p": 1.0 if sampling.greedy else sampling.top_p,
            "logprobs": 0,  # of the sampled token only
            "stop_token_ids": self.ends,
            "ignore_eos": True,  # only our own end tokens
        }
        params = [SamplingParams(**how, **self.request_defaults(), seed=int(seed) % (2**63 - 1)) for seed in seeds]
        each = [prompt for prompt in prompts for _ in range(group)]
        with self.lock:
            self.sleep_state.check_ready()
            found = [output.outputs[0] for output in self.run_requests(each, params, progress, self.report_row(group))]
            return outputs.to_responses(found, self.ends, sampling.width, self.version)

    def score(self, prompts: Sequence[Tokens], responses: Sequence[Tokens]) -> list[torch.Tensor]:
        """[T_n] float32 log-probabilities of the tokens of N responses, each to its own prompt, at temperature 1.

        vLLM does not reuse keys and values of earlier requests when log-probabilities of a prompt are requested.
        """
        if not len(prompts):
            return []
        self.check_context(max(len(p) + len(r) for p, r in zip(prompts, responses, strict=True)))
        from vllm import SamplingParams

        params = SamplingParams(
            max_tokens=1, temperature=0.0, prompt_logprobs=0, ignore_eos=True, **self.request_defaults()
        )
        rows = [[*prompt, *response] for prompt, response in zip(prompts, responses, strict=True)]
        with self.lock:
            self.sleep_state.check_ready()
            answers = self.run_requests(rows, [params] * len(rows), None)
        scores = []
        for row, (prompt, response, answer) in enumerate(zip(prompts, responses, answers, strict=True)):
            found = answer.prompt_logprobs[len(prompt) :]
            scores.append(torch.tensor(outputs.token_logps(row, list(response), found), dtype=torch.float32))
        return scores

    def request_defaults(self) -> dict[str, Any]:
        """Settings of all requests: no text, one answer at the end, numbers in flat lists."""
        from vllm.sampling_params import RequestOutputKind

        return {"detokenize": False, "output_kind": RequestOutputKind.FINAL_ONLY, "flat_logprobs": True}

    def report_row(self, group: int) -> Callable[[int, Tokens], None] | None:
        """The callback for a finished row and its tokens; None if there is none."""
        report = self.on_finished
        return None if report is None else lambda row, tokens: report(row // group, tokens)

    def run_requests(
        self,
        prompts: Sequence[Tokens],
        params: Sequence[Any],
        progress: Progress | None,
        finished: Callable[[int, Tokens], None] | None = None,
    ) -> list[Any]:
        """vLLM's outputs, in order. An exception from vLLM itself means that this engine is lost."""
        engine, self.calls = self.llm.llm_engine, self.calls + 1
        names = {f"{self.calls}-{row}": row for row in range(len(prompts))}
        done: dict[int, Any] = {}
        written, reported = 0, 0.0
        torch.set_num_threads(self.threads)  # a new thread starts with another number, which affects vLLM's attention
        try:
            for name, prompt, how in zip(names, prompts, params, strict=True):
                engine.add_request(name, {"prompt_token_ids": list(prompt)}, how)
            while engine.has_unfinished_requests():
                for output in engine.step():
                    row, tokens = names[output.request_id], output.outputs[0].token_ids
                    done[row] = output
                    written += len(tokens)
                    if finished is not None:
                        finished(row, list(tokens))
                last = len(done) == len(names)
                if progress is not None and (last or time.monotonic() - reported >= PROGRESS_SECONDS):
                    reported = time.monotonic()
                    self.report(progress, written, len(done))
        except Stop as stop:
            engine.abort_request([name for name, row in names.items() if row not in done])
            raise stop.cause from None
        except (PmdkitError, KeyboardInterrupt, SystemExit):  # a signal, in the middle of a step
            self.sleep_state.state = "broken"
            raise
        except Exception as problem:
            self.sleep_state.state = "broken"
            raise EngineLost(f"vLLM failed while generating: {first_line(problem)}") from problem
        if len(done) != len(names):
            self.sleep_state.state = "broken"
            raise EngineLost(f"vLLM answered {len(done)} of {len(names)} rows")
        return [done[row] for row in range(len(names))]

    def report(self, progress: Progress, written: int, ended: int) -> None:
        """Report the tokens so far, of finished and unfinished rows."""
        going = self.llm.llm_engine.output_processor.request_states.values()
        tokens = written + sum(state.detokenizer.num_output_tokens() for state in going)
        try:
            progress(tokens, ended)
        except BaseException as cause:
            raise Stop(cause) from cause

    def check_context(self, tokens: int) -> None:
        """Refuse rows that vLLM would cut short."""
        if tokens > self.config.context:
            raise UsageError(
                f"a prompt and its response need {tokens} tokens; the vLLM engine was made for {self.config.context}: "
                "shorten the responses, or leave out long prompts"
            )

    def publish(self, weights: Mapping[str, torch.Tensor], version: int) -> None:
        """Load weights named as in `model.state_dict()`, and their version.

        Tied weights may be given under any of their names. Weights of another model or with entries that are not
        finite are refused. By file, an engine that was awake is unchanged then; with weights handed over it is lost,
        unless only their names were wrong.
        """
        with self.lock:
            if version < self.version:
                raise UsageError(f"version {version} after version {self.version}; weights must not go back")
            self.sleep_state.check_whole()
            self.names.check(weights)
            before = self.sleep_state.state
            try:
                with stdout_to_stderr():
                    self.sleep_state.publish(lambda: self.send_weights(weights, version))
            except PmdkitError as problem:
                # files are written and checked before vLLM is called: such a refusal has not touched the engine
                if self.backend == "file" and not isinstance(problem, EngineLost) and before != "asleep":
                    self.sleep_state.state = before
                raise
            except Exception as problem:
                raise EngineLost(f"vLLM failed while loading weights: {first_line(problem)}") from problem
            self.version = version

    def send_weights(self, weights: Mapping[str, torch.Tensor], version: int) -> None:
        """Send all weights by vLLM's weight transfer, with a version that vLLM writes on every row from then on."""
        dtype = getattr(torch, self.config.dtype)
        some = self.names.stream(weights, dtype)
        if self.backend == "ipc":
            self.update_weights({"weights": some}, version)
            return
        path = self.files / f"{PREFIX}{os.getpid()}-{id(self)}-{version}.safetensors"
        file = write_weights(path, some, self.names.file_shapes, dtype)
        try:
            self.update_weights(file.as_json(), version)
        finally:
            file.remove()

    def update_weights(self, update_info: dict[str, Any], version: int) -> None:
        """One round trip: start, update, finish."""
        self.llm.start_weight_update()
        self.llm.update_weights({"update_info": update_info})
        self.llm.finish_weight_update(weight_version=str(version))

    def enter(self, phase: Phase) -> None:
        """Prepare for the next phase: memory is given back during updates."""
        with self.lock:
            self.sleep_state.enter(phase)

    def restart(self) -> None:
        """Start a new vLLM in this process, without weights."""
        with self.lock:
            self.close()
            self.start()

    def close(self) -> None:
        """Release everything; a second call does no harm."""
        with self.lock:
            if self.llm is not None:
                shut_down_vllm(self.llm, self.owns_group)
            self.llm = self.sleep_state = None  # type: ignore[assignment]
            gc.unfreeze()  # vLLM freezes all objects once it has started
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()


class Stop(BaseException):
    """Carries an exception from `progress` past the clause for vLLM's own failures."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__()
        self.cause = cause


class SleepState:
    """When the engine sleeps, wakes and may generate. It is "empty" before the first publish, "ready", "asleep" without
    weights, or "broken".

    Args:
        llm: vLLM's LLM, whose `sleep`, `wake_up` and `reset_prefix_cache` are called.
        sleeping: give the memory back during updates.
    """

    def __init__(self, llm: Any, sleeping: bool) -> None:
        self.llm = llm
        self.sleeping = sleeping
        self.state: State = "empty"

    def enter(self, phase: Phase) -> None:
        """Sleep for an update, at level 2: the old weights are useless after it. `publish` wakes the engine."""
        self.check_whole()
        if phase == "update" and self.sleeping and self.state == "ready":
            self.state = "broken"  # until vLLM has returned from it
            self.llm.sleep(level=2)
            self.state = "asleep"

    def publish(self, send: Callable[[], None]) -> None:
        """Make room for weights, send them, make room for keys and values, and drop the old ones.

        A failure on the way leaves the engine broken: it may hold weights of two versions.
        """
        self.check_whole()
        asleep, self.state = self.state == "asleep", "broken"
        if asleep:
            self.llm.wake_up(tags=["weights"])
        send()
        if asleep:
            self.llm.wake_up(tags=["kv_cache"])
        if self.llm.reset_prefix_cache() is False:
            raise EngineLost("vLLM keeps keys and values of older weights: rows are being written; restart the engine")
        self.state = "ready"

    def check_ready(self) -> None:
        """Refuse to generate without weights."""
        self.check_whole()
        if self.state != "ready":
            why = "forgot its weights for an update" if self.state == "asleep" else "has no weights yet"
            raise UsageError(f"the vLLM engine {why}; publish weights before asking for responses")

    def check_whole(self) -> None:
        """Refuse everything after a failure."""
        if self.state == "broken":
            raise EngineLost("the vLLM engine failed before and may hold parts of two versions; restart it")


# vLLM starts and shuts down without side effects on the trainer: its random state, threads, process group and standard
# output are preserved.


def start_vllm(options: dict[str, Any], architecture: str, version: str, owns_group: bool) -> Any:
    """Start a `vllm.LLM`.

    Args:
        options: its keyword arguments.
        architecture: the trainer's class in transformers.
        version: of vLLM, for messages.
        owns_group: see `shut_down_vllm`.

    Raises:
        UsageError: this vLLM does not know the architecture.
        EnvironmentLacks: vLLM does not start: memory, kernels, a build for other hardware, a bad option of
            [vllm.options].
    """
    with stdout_to_stderr(), preserve_globals():
        try:
            from vllm import LLM, ModelRegistry
        except (ImportError, OSError) as problem:
            raise EnvironmentLacks(f"vLLM {version} does not load: {first_line(problem)}; reinstall it") from problem
        known = ModelRegistry.get_supported_archs()
        if architecture not in known:
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


def first_line(problem: BaseException) -> str:
    """The beginning of another package's error message; pydantic's first line only says how many errors there are."""
    lines = (str(problem).strip() or type(problem).__name__).splitlines()
    return " ".join(line.strip() for line in lines[: 3 if "validation error" in lines[0] else 1])[:300]


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Whatever this process writes to file descriptor 1 inside the block, from any thread, is written to 2.

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
