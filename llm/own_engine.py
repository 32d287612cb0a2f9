"""An engine of your own: copy this file, change its methods, and set rollout.engine = "my.py:MyEngine".

Here: a server of SGLang that runs already, say `python -m sglang.launch_server --model-path MODEL
--enable-deterministic-inference`, without which it ignores seeds. The code follows SGLang's documented HTTP interface.
It is tested against a stub of that interface and has not met the real server: the canary (`rollout.canary`) will tell.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import httpx
import numpy as np
import torch
from safetensors.torch import save_file

from pmdkit.llm.engines import base
from pmdkit.llm.engines.base import NO_WEIGHTS, EngineConfig, EngineLost, Phase, Progress, Responses, Sampling, Tokens
from pmdkit.options import Checked

MAX_SEED = 2**31  # SGLang's seeds are 32-bit integers


@dataclass(frozen=True)
class Options(Checked):
    """[engine.options]."""

    table: ClassVar[str] = "engine.options."

    url: str = "http://127.0.0.1:30000"
    "Address of the server."
    folder: str | None = None
    "Folder for weights, which trainer and server see; by default the system's temporary folder."
    timeout: float = 600.0
    "Seconds within which the server must answer."
    rows: int = 128
    "Requests at a time; the server batches them."


class SGLangEngine:
    """Generates and scores responses with one server."""

    central: ClassVar[bool] = True  # the main process alone talks to the server
    Options = Options

    def __init__(self, config: EngineConfig) -> None:
        self.config, self.options, self.version = config, config.options, NO_WEIGHTS
        self.vocabulary = int(config.model.config.get_text_config().vocab_size)
        self.client = httpx.Client(base_url=self.options.url, timeout=self.options.timeout)
        self.call("GET", "/health")

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """The answer to a request: JSON if it is that."""
        try:
            answer = self.client.request(method, path, json=body)
            answer.raise_for_status()
        except httpx.HTTPError as problem:
            raise EngineLost(f"the SGLang server at {self.options.url} fails at {path}: {problem}") from problem
        return answer.json() if "json" in answer.headers.get("content-type", "") else answer.text

    def ask(self, tokens: Tokens, sampling: dict[str, Any], **more: Any) -> tuple[list[list[Any]], list[list[Any]]]:
        """(log-probability, token, text) of the prompt from `logprob_start_len` on, and of the response."""
        body = {"input_ids": list(tokens), "sampling_params": sampling, "return_logprob": True, **more}
        facts = self.call("POST", "/generate", body)["meta_info"]
        if facts["weight_version"] != str(self.version):  # the server was restarted, or somebody else replaced them
            raise EngineLost(f"the server has weights {facts['weight_version']}; expected version {self.version}")
        return facts["input_token_logprobs"], facts["output_token_logprobs"]

    def generate(
        self,
        prompts: Sequence[Tokens],
        group: int,
        seeds: np.ndarray,
        sampling: Sampling,
        progress: Progress | None = None,
    ) -> Responses:
        """`group` responses to each of P prompts; `seeds` [P * group], one for each row."""
        base.check_request(prompts, group, seeds, self.vocabulary)
        how = {
            "max_new_tokens": sampling.width,
            "temperature": 0.0 if sampling.greedy else sampling.temperature,
            "top_p": sampling.top_p,
            "stop_token_ids": list(self.config.ends),
            "ignore_eos": True,  # only our own end tokens
            "skip_special_tokens": False,
        }

        def draw(row: int) -> tuple[list[int], list[float]]:
            _, written = self.ask(prompts[row // group], how | {"sampling_seed": int(seeds[row]) % MAX_SEED})
            return [int(token) for _, token, *_ in written], [float(logp) for logp, *_ in written]

        rows = self.each(draw, len(seeds))
        if progress is not None:
            progress(sum(len(tokens) for tokens, _ in rows), len(rows))
        return Responses.from_rows(rows, self.config.ends, self.version)

    def score(self, prompts: Sequence[Tokens], responses: Sequence[Tokens]) -> list[torch.Tensor]:
        """[T_n] log-probabilities of the tokens of N responses, each to its own prompt, at temperature 1."""

        def read(row: int) -> torch.Tensor:
            prompt, response = list(prompts[row]), list(responses[row])
            found, _ = self.ask(prompt + response, {"max_new_tokens": 1}, logprob_start_len=len(prompt) - 1)
            return torch.tensor([float(logp) for logp, *_ in found[-len(response) :]])

        return self.each(read, len(prompts))

    def each(self, call: Callable[[int], Any], count: int) -> list[Any]:
        """The results for all rows, some at a time."""
        with ThreadPoolExecutor(self.options.rows) as pool:
            return list(pool.map(call, range(count)))

    def publish(self, weights: Mapping[str, torch.Tensor], version: int) -> None:
        """Load these weights, named as in the model; what was cached under older ones is dropped."""
        with tempfile.TemporaryDirectory(prefix="pmdkit-weights-", dir=self.options.folder) as place:
            dtype = getattr(torch, self.config.dtype)
            tensors = {name: weights[name].detach().to("cpu", dtype, copy=True).contiguous() for name in weights}
            save_file(tensors, Path(place, "model.safetensors"))
            self.config.model.config.save_pretrained(place)
            body = {"model_path": place, "flush_cache": True, "weight_version": str(version)}
            answer = self.call("POST", "/update_weights_from_disk", body)
        if not answer["success"]:
            raise EngineLost(f"the SGLang server does not load the weights: {answer['message']}")
        self.call("POST", "/flush_cache")
        self.version = version

    def enter(self, phase: Phase) -> None:
        """Do nothing: the server has its own memory."""

    def close(self) -> None:
        """Leave the server running."""
        self.client.close()
