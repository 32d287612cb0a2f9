"""The engine of rollout.engine = "vllm-server": running `vllm serve` processes, which all get the same weights.

Only the main process calls them. vLLM's routes for weights have no authentication: anyone who reaches a server can
replace its weights, so servers belong on loopback or on a private network.
"""

import asyncio
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from secrets import token_hex
from typing import Any, ClassVar

import httpx
import numpy as np
import torch
from safetensors.torch import save_file

from pmdkit.errors import EnvironmentLacks, UsageError
from pmdkit.llm.engines import base
from pmdkit.llm.engines.base import NO_WEIGHTS, EngineConfig, EngineLost, Phase, Progress, Responses, Sampling, Tokens
from pmdkit.llm.engines.vllm import check_version
from pmdkit.llm.engines.vllm.arguments import MAX_SEED, sampling_arguments
from pmdkit.llm.engines.vllm.client import Json, Server, call_each
from pmdkit.llm.engines.vllm.weight_names import WeightNames, layer
from pmdkit.specs.llm import VLLMTable

REQUESTS = 1152  # at a time to a replica: vLLM generates up to 1,024 rows together, the rest wait in its queue
POLL = 0.25  # seconds between calls of progress, and between checks of a server that starts
UNDEFINED = -9999.0  # what vLLM writes for a log-probability that is NaN or -inf, which JSON cannot hold
# everything that shapes the distribution is set: a server's own defaults may come from its model
DEFAULTS: Json = {"n": 1, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "stream": False}
DEFAULTS |= {"presence_penalty": 0.0, "frequency_penalty": 0.0}
HOW_TO_START = (
    "start it with VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --logprobs-mode processed_logprobs --generation-config vllm "
    "--max-model-len TOKENS"
)


class ServerEngine:
    """Generates and scores responses with several servers, data parallel: each answers a part of the prompts.

    Made once all servers answer.

    Attributes:
        tag: weight version that all servers have confirmed; "" if there is none, or a publish was interrupted.
        replicas: copies of the model behind all addresses; an address has --data-parallel-size of them.
    """

    central: ClassVar[bool] = True

    @staticmethod
    def check(options: VLLMTable) -> None:
        """Refuse a recipe without servers."""
        if not options.urls:
            raise UsageError(
                "vllm.urls is empty; rollout.engine = 'vllm-server' needs the addresses of running servers, such as "
                "http://127.0.0.1:8000; see docs/use/engines.md for the command that starts one"
            )

    def __init__(self, config: EngineConfig) -> None:
        until = time.monotonic() + config.options.timeout
        self.servers = [connect(url, config, until) for url in config.options.urls]
        self.ends = list(config.ends)
        self.vocabulary = int(config.model.config.get_text_config().vocab_size)
        self.requests = config.options.rows or REQUESTS
        self.replicas = sum(server.replicas for server in self.servers)
        allow_files(self.requests * self.replicas + 256)
        self.names, self.dtype = WeightNames(config.model.config), getattr(torch, config.dtype)
        self.folder = config.options.folder
        self.version = NO_WEIGHTS
        self.run, self.publishes = token_hex(4), 0
        self.tag = ""

    def generate(
        self,
        prompts: Sequence[Tokens],
        group: int,
        seeds: np.ndarray,
        sampling: Sampling,
        progress: Progress | None = None,
    ) -> Responses:
        """`group` responses to each of P prompts; a row depends on its prompt and its own entry of seeds [P * group].

        The server, and the other rows generated at the same time, change its log-probabilities by rounding only.
        """
        base.check_request(prompts, group, seeds, self.vocabulary)
        how = sampling_arguments(sampling, self.ends)
        how |= {"return_token_ids": True, "return_tokens_as_token_ids": True}  # a server may have no tokenizer
        bodies = [
            {"prompt": list(prompts[row // group]), "seed": int(seed) % MAX_SEED, **how}
            for row, seed in enumerate(seeds)
        ]

        def read(row: int, choice: Json) -> tuple[list[int], list[float]]:
            tokens = list(choice["token_ids"])
            return tokens, checked_logps(choice["logprobs"]["token_logprobs"], len(tokens))

        rows = self.complete(bodies, group, read, progress)
        return Responses.from_rows(rows, self.ends, self.version)

    def score(self, prompts: Sequence[Tokens], responses: Sequence[Tokens]) -> list[torch.Tensor]:
        """[T_n] float32 log-probabilities of the tokens of N responses, each to its own prompt, at temperature 1."""
        if not len(prompts):
            return []
        bodies: list[Json] = [
            {"prompt": [*prompt, *response], "max_tokens": 1, "temperature": 0.0, "prompt_logprobs": 0}
            for prompt, response in zip(prompts, responses, strict=True)
        ]

        def read(row: int, choice: Json) -> list[float]:
            response, found = responses[row], choice["prompt_logprobs"][len(prompts[row]) :]
            logps = [entry[str(token)]["logprob"] for token, entry in zip(response, found, strict=True)]
            return checked_logps(logps, len(response))

        return [torch.tensor(row, dtype=torch.float32) for row in self.complete(bodies, 1, read)]

    def complete(
        self, bodies: Sequence[Json], group: int, read: Callable[[int, Json], Any], progress: Progress | None = None
    ) -> list[Any]:
        """Parsed answers to all requests, in order; `group` requests in a row have the same prompt."""
        if not self.tag:
            raise UsageError("the vLLM servers have no weights yet; publish weights before asking for responses")
        self.check_tag()
        answers = asyncio.run(self.complete_all(bodies, group, read, progress))
        self.check_tag()  # no other client has replaced the weights meanwhile
        return answers

    async def complete_all(
        self, bodies: Sequence[Json], group: int, read: Callable[[int, Json], Any], progress: Progress | None
    ) -> list[Any]:
        """One request per row, `requests` at a time to each replica. /v1/completions takes one seed for a request."""
        answers: dict[int, Any] = {}
        written = 0
        context = httpx.create_ssl_context()
        free = [asyncio.Semaphore(self.requests * server.replicas) for server in self.servers]

        async def ask(row: int) -> None:
            """Deal prompts to servers in turn; all rows of a prompt go to one server, which reads it once."""
            nonlocal written
            place = row // group % len(self.servers)
            server = self.servers[place]
            # a client each: a pool of n connections looks at all of them for every request, n^2 in all
            async with free[place], httpx.AsyncClient(verify=context) as client:
                body = DEFAULTS | {"model": server.model} | bodies[row]
                answer = await server.post_from(client, "/v1/completions", body)
            try:
                (choice,) = answer["choices"]
                answers[row] = read(row, choice)
            except (KeyError, TypeError, ValueError) as problem:
                raise EngineLost(f"the server at {server.url} answers row {row} with {str(answer)[:200]}") from problem
            written += int(answer["usage"]["completion_tokens"])

        async def report() -> None:
            while progress is not None:
                progress(written, len(answers))  # raises if no caller waits any more
                await asyncio.sleep(POLL)

        try:
            async with asyncio.TaskGroup() as tasks:  # the first failure cancels all other requests
                reporter = tasks.create_task(report())
                await asyncio.gather(*(tasks.create_task(ask(row)) for row in range(len(bodies))))
                reporter.cancel()
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None
        if progress is not None:
            progress(written, len(answers))
        return [answers[row] for row in range(len(bodies))]

    def publish(self, weights: Mapping[str, torch.Tensor], version: int) -> None:
        """Load these weights, named as in the model, into all servers.

        Servers are paused until each has loaded all of them; nothing computed with older weights survives.
        """
        self.publishes += 1
        self.tag, tag = "", f"pmdkit-{self.run}-{version}-{self.publishes}"
        send_weights(self.servers, self.names, weights, self.dtype, self.folder)
        call_each(self.servers, lambda server: server.post("/reset_prefix_cache"))
        call_each(self.servers, lambda server: server.post("/update_weight_version", {"new_version": tag}))
        call_each(self.servers, lambda server: server.post("/resume"))
        self.tag, self.version = tag, version

    def check_tag(self) -> None:
        """Check that every server still has the weights of the last publish: one that was restarted has lost them."""
        answers = call_each(self.servers, lambda server: server.get("/weight_info"))
        for server, answer in zip(self.servers, answers, strict=True):
            if answer.get("weight_version") != self.tag:
                raise EngineLost(
                    f"the server at {server.url} has weights {answer.get('weight_version')}; expected {self.tag}: it "
                    "was restarted, or somebody else replaced them"
                )

    def enter(self, phase: Phase) -> None:
        """Do nothing: servers have their own memory."""

    def close(self) -> None:
        """Leave the servers running."""
        self.tag = ""


def allow_files(count: int) -> None:
    """Let this process open as many files, connections among them, as far as the system's hard limit goes."""
    with suppress(ImportError):  # Windows has no such limit
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY and soft < count:
            most = count if hard == resource.RLIM_INFINITY else min(count, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def connect(url: str, config: EngineConfig, until: float) -> Server:
    """A server that can serve a run, and the name of its model; one that may still be loading is waited for."""
    seconds = config.options.timeout
    server = Server(url, seconds)
    while True:
        try:
            server.get("/health")
            break
        except EngineLost as problem:
            if time.monotonic() > until:
                raise EnvironmentLacks(f"{problem}; waited for {seconds:g} s (vllm.timeout)") from problem
            time.sleep(POLL)
    try:
        check_version(str(server.get("/version").get("version")))
        server.model = str(server.get("/v1/models")["data"][0]["id"])
        told: Json = server.get("/server_info?config_format=json")["vllm_config"]
        settings: Json = told["model_config"]
        server.replicas = int(told["parallel_config"]["data_parallel_size"])
    except (EngineLost, UsageError, KeyError) as problem:
        raise EnvironmentLacks(f"{problem}; {HOW_TO_START}") from problem
    # vLLM's default, raw_logprobs, is the distribution before temperature and top-p
    mode, longest = settings.get("logprobs_mode"), settings.get("max_model_len") or 0
    if mode != "processed_logprobs" or longest <= config.context:  # scoring a whole row asks for one token more
        raise EnvironmentLacks(
            f"the server at {server.url} has logprobs_mode {mode} and max_model_len {longest}; expected "
            f"processed_logprobs and at least {config.context + 1}: {HOW_TO_START}"
        )
    return server


def checked_logps(logps: Sequence[Any], count: int) -> list[float]:
    """The log-probabilities of a row; refused where one is missing or undefined."""
    if len(logps) != count or any(logp is None or logp <= UNDEFINED for logp in logps):
        raise EngineLost(
            "a server answers with log-probabilities that are missing, NaN or -inf: its weights are broken"
        )
    return list(logps)


def send_weights(
    servers: Sequence[Server],
    names: WeightNames,
    weights: Mapping[str, torch.Tensor],
    dtype: torch.dtype,
    folder: str | None,
) -> None:
    """Write all weights, one file per layer; then pause the servers, which load them with vLLM's own `reload_weights`.

    Weights that are not finite or not those of the model are refused before any server is touched. `folder` is visible
    to trainer and servers; None is the system's folder for temporary files. The servers stay paused.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="pmdkit-weights-", dir=folder) as place:
            stream = names.stream(weights, dtype)
            for number, (_, some) in enumerate(groupby(stream, key=lambda pair: layer(pair[0]))):
                # tied tensors share memory, which safetensors does not write
                tensors = {name: tensor.cpu().clone(memory_format=torch.contiguous_format) for name, tensor in some}
                save_file(tensors, Path(place, f"model-{number:05}.safetensors"))

            def load(server: Server) -> None:
                server.post("/pause?mode=abort")
                # a server that began with dummy weights would not read files
                overrides = {"load_config": {"load_format": "safetensors"}}
                server.post("/collective_rpc", {"method": "update_config", "kwargs": {"overrides": overrides}})
                server.post("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": place}})

            call_each(servers, load)
    except OSError as problem:
        place = folder or tempfile.gettempdir()
        raise EnvironmentLacks(f"no weights in {place}: {problem}; make room, or set vllm.folder") from problem
