"""vLLM in the trainer's process: `rollout.engine = "vllm"`. Weights come by publish only, rows carry their version.

How weights travel is transfer_*.py, when the engine sleeps is phases.py, what outputs must look like is reading.py.
"""

import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pmdkit.errors import PmdkitError, UsageError
from pmdkit.llm.engines.embedded import check
from pmdkit.llm.engines.protocol import EngineLost, Phase, Progress, Responses, Sampling, Tokens
from pmdkit.llm.engines.vllm import arguments, starting
from pmdkit.llm.engines.vllm.folder import write_folder
from pmdkit.llm.engines.vllm.names import Names
from pmdkit.llm.engines.vllm.phases import Phases
from pmdkit.llm.engines.vllm.quiet import to_stderr
from pmdkit.llm.engines.vllm.reading import logps, responses
from pmdkit.llm.engines.vllm.versions import installed_version, interface
from pmdkit.llm.engines.vllm.weight_file import folder_for
from pmdkit.llm.engines.wanted import Wanted

TOLD = 0.1  # seconds between calls of progress: counting tokens costs a pass over all rows


def make(wanted: Wanted) -> "InsideEngine":
    """The engine of a run."""
    return InsideEngine(wanted)


class InsideEngine:
    """An Engine that is a `vllm.LLM` in this process.

    Every method may be called from any thread: calls wait for each other, so that weights never change under rows that
    are being written. The trainer may compute meanwhile. With `tensor_parallel` above 1, all processes of one
    `replica` make the same calls with the same prompts in the same order; with several processes all of them make,
    restart and close their engines together.

    Greedy rows have the log-probabilities of temperature 1.

    Args:
        wanted: see Wanted.

    Attributes:
        version: of the weights last published.
        replica: which engine this process belongs to; processes of equal `replica` form one.
        replicas: engines in all.
    """

    def __init__(self, wanted: Wanted) -> None:
        self.release = installed_version()
        self.api = interface(self.release)
        self.wanted = wanted
        self.ends = list(wanted.ends)
        self.version = 0
        self.replica = wanted.rank // wanted.vllm.tensor_parallel
        self.replicas = wanted.size // wanted.vllm.tensor_parallel
        self.lock = RLock()
        self.names = Names(wanted.model.config)
        self.vocabulary = wanted.model.config.get_text_config().vocab_size
        self.kind = arguments.backend(wanted)
        self.files = folder_for(wanted.vllm.folder)
        self.calls = 0
        self.llm: Any = None
        self.begin()

    def begin(self) -> None:
        """Start vLLM with weights that mean nothing."""
        wanted = self.wanted
        arguments.set_environment()
        self.ours = not torch.distributed.is_initialized()
        self.threads = torch.get_num_threads()
        with tempfile.TemporaryDirectory(prefix="pmdkit-vllm-") as name:
            given = arguments.arguments(wanted, Path(name), self.api)
            write_folder(
                Path(name), wanted.model.config, self.names.architecture, given["max_model_len"], wanted.tokenizer
            )
            if self.api == "native":
                from pmdkit.llm.engines.vllm.transfer_native import configuration

                with to_stderr(), starting.untouched():
                    given["weight_transfer_config"] = configuration(self.kind)
            self.llm = starting.start(given, self.names.architecture, str(self.release), self.ours)
        self.transfer = self.make_transfer()
        self.phases = Phases(self.llm, arguments.sleeping(wanted))

    def make_transfer(self) -> Any:
        """What sends weights to the vLLM that is installed."""
        dtype = getattr(torch, self.wanted.dtype)
        if self.api == "reload":
            from pmdkit.llm.engines.vllm.transfer_reload import ReloadTransfer

            return ReloadTransfer(self.llm, self.names, dtype)
        from pmdkit.llm.engines.vllm.transfer_native import NativeTransfer

        return NativeTransfer(self.llm, self.kind, self.names, dtype, self.files)

    def generate(
        self,
        prompts: Sequence[Tokens],
        group: int,
        seeds: NDArray[np.uint64],
        sampling: Sampling,
        progress: Progress | None = None,
    ) -> Responses:
        """`group` responses to each of P prompts; a row depends on its prompt and its own entry of seeds [P * group].

        Other rows in the batch move log-probabilities by rounding. Where `progress` raises, rows that have begun are
        given up and the engine can be used again.
        """
        check(prompts, group, seeds, sampling, self.vocabulary)
        self.check_room(max(len(prompt) for prompt in prompts) + sampling.width)
        from vllm import SamplingParams

        how = {
            "max_tokens": sampling.width,
            "temperature": 0.0 if sampling.greedy else sampling.temperature,
            "top_p": 1.0 if sampling.greedy else sampling.top_p,
            "logprobs": 0,  # of the sampled token alone
            "stop_token_ids": self.ends,
            "ignore_eos": True,  # our ends and no others
        }
        params = [SamplingParams(**how, **self.plain(), seed=int(seed) % (2**63 - 1)) for seed in seeds]
        each = [prompt for prompt in prompts for _ in range(group)]
        with self.lock:
            self.phases.check_ready()
            outputs = self.write(each, params, progress)
            return responses([output.outputs[0] for output in outputs], self.ends, sampling.width, self.version)

    def score(self, prompts: Sequence[Tokens], responses: Sequence[Tokens]) -> list[Tensor]:
        """[T_n] float32 log-probabilities of the tokens of N responses, each to its own prompt, at temperature 1.

        vLLM reads no keys and values of earlier requests where log-probabilities of a prompt are asked for.
        """
        if not len(prompts):
            return []
        self.check_room(max(len(p) + len(r) for p, r in zip(prompts, responses, strict=True)))
        from vllm import SamplingParams

        params = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0, ignore_eos=True, **self.plain())
        rows = [[*prompt, *response] for prompt, response in zip(prompts, responses, strict=True)]
        with self.lock:
            self.phases.check_ready()
            outputs = self.write(rows, [params] * len(rows), None)
        scores = []
        for row, (prompt, response, output) in enumerate(zip(prompts, responses, outputs, strict=True)):
            found = output.prompt_logprobs[len(prompt) :]
            scores.append(torch.tensor(logps(row, list(response), found), dtype=torch.float32))
        return scores

    def plain(self) -> dict[str, Any]:
        """Of all requests: no text, one answer at the end, numbers in flat lists."""
        from vllm.sampling_params import RequestOutputKind

        return {"detokenize": False, "output_kind": RequestOutputKind.FINAL_ONLY, "flat_logprobs": True}

    def write(self, prompts: Sequence[Tokens], params: Sequence[Any], progress: Progress | None) -> list[Any]:
        """vLLM's outputs, in order. What vLLM itself raises is the end of this engine."""
        engine, self.calls = self.llm.llm_engine, self.calls + 1
        names = {f"{self.calls}-{row}": row for row in range(len(prompts))}
        done: dict[int, Any] = {}
        written, told = 0, 0.0
        torch.set_num_threads(self.threads)  # a new thread begins with another number, and vLLM's attention minds
        try:
            for name, prompt, how in zip(names, prompts, params, strict=True):
                engine.add_request(name, {"prompt_token_ids": list(prompt)}, how)
            while engine.has_unfinished_requests():
                for output in engine.step():
                    done[names[output.request_id]] = output
                    written += len(output.outputs[0].token_ids)
                last = len(done) == len(names)
                if progress is not None and (last or time.monotonic() - told >= TOLD):
                    told = time.monotonic()
                    self.report(progress, written, len(done))
        except Stop as stop:
            engine.abort_request([name for name, row in names.items() if row not in done])
            raise stop.cause from None
        except (PmdkitError, KeyboardInterrupt, SystemExit):  # a signal, in the middle of a step
            self.phases.keep("broken")
            raise
        except Exception as problem:
            self.phases.keep("broken")
            raise EngineLost(f"vLLM failed while it wrote: {starting.first_line(problem)}") from problem
        if len(done) != len(names):
            self.phases.keep("broken")
            raise EngineLost(f"vLLM answered {len(done)} of {len(names)} rows")
        return [done[row] for row in range(len(names))]

    def report(self, progress: Progress, written: int, ended: int) -> None:
        """Tokens so far, of rows that ended and of those that go on."""
        going = self.llm.llm_engine.output_processor.request_states.values()
        tokens = written + sum(state.detokenizer.num_output_tokens() for state in going)
        try:
            progress(tokens, ended)
        except BaseException as cause:
            raise Stop(cause) from cause

    def check_room(self, tokens: int) -> None:
        """Refuse rows that vLLM would cut short."""
        if tokens > self.wanted.context:
            raise UsageError(
                f"a prompt and its response need {tokens} tokens; the vLLM engine was made for {self.wanted.context}: "
                "shorten the responses, or leave out long prompts"
            )

    def publish(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Take over weights named as in `model.state_dict()`, and their version.

        Tied weights may be given under any of their names. Weights of another model or with entries that are not
        numbers are refused; by file nothing has changed then, handed over the engine is lost.
        """
        with self.lock:
            if version < self.version:
                raise UsageError(f"version {version} after version {self.version}; weights must not go back")
            self.phases.check_whole()
            self.names.check(weights)
            before = self.phases.state
            try:
                with to_stderr():
                    self.phases.publish(lambda: self.transfer.send(weights, version))
            except PmdkitError as problem:
                if self.untouched_by(problem) and before != "asleep":
                    self.phases.keep(before)
                raise
            except Exception as problem:
                raise EngineLost(f"vLLM failed while it took weights: {starting.first_line(problem)}") from problem
            self.version = version

    def untouched_by(self, problem: PmdkitError) -> bool:
        """Whether a publish was refused before vLLM heard of it: files are written and checked first."""
        return self.api == "native" and self.kind == "file" and not isinstance(problem, EngineLost)

    def enter(self, phase: Phase) -> None:
        """Told what comes next: memory is given back during updates, see phases.py."""
        with self.lock:
            self.phases.enter(phase)

    def restart(self) -> None:
        """A new vLLM in this process, without weights."""
        with self.lock:
            self.close()
            self.begin()

    def close(self) -> None:
        """Let everything go; again is no harm."""
        with self.lock:
            if self.llm is not None:
                starting.end(self.llm, self.ours)
            self.llm = self.transfer = self.phases = None  # type: ignore[assignment]
            starting.collect()


class Stop(BaseException):
    """Carries what `progress` raised past the clause for vLLM's own failures."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__()
        self.cause = cause
