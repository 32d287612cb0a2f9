"""A model on a Tinker server: its log-probabilities, its gradient, an optimizer step, its state, and samplers of it.

The only file that imports the SDK. Sequences are prompt and response together, and a sequence of n tokens has n - 1
log-probabilities: those of its tokens but the first.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import torch
from torch import Tensor

from pmdkit.errors import ComponentDied, EnvironmentLacks, UsageError, short
from pmdkit.llm.engines.base import Tokens
from pmdkit.observe.telemetry import no_telemetry
from pmdkit.specs import LLMSpec
from pmdkit_adapters.tinker.replies import check_logps, check_norm, check_path
from pmdkit_adapters.tinker.server import CONTACT, LONGEST, READ, Server

KEY = "TINKER_API_KEY"
SECONDS = 10.0  # for a server to say that it is there

Loss = Callable[[list[Tensor]], Tensor]
"Takes the log-probabilities of each sequence and returns a scalar with gradient."


class TrainingClient:
    """A model with adapters on a server.

    Args:
        service, training: clients of the SDK.

    Attributes:
        call: how a gradient is taken: "forward_backward_custom", or "importance_sampling" with ratio 1, whose loss a
            server averages over the tokens of a sequence and over the sequences.

    Every method raises ComponentDied if the server fails, is too slow, or answers with what was not asked for.
    """

    def __init__(self, service: Any, training: Any, server: Server) -> None:
        self.sdk = sdk()
        self.service, self.training, self.server = service, training, server
        self.call = "forward_backward_custom"

    def datum(self, tokens: Tokens, **inputs: Tensor) -> Any:
        """A sequence, whose targets are its tokens shifted by one; `inputs` are [n - 1] numbers of the loss."""
        given = self.sdk.ModelInput.from_ints(list(tokens[:-1]))
        targets = torch.tensor(list(tokens[1:]), dtype=torch.int64)
        return self.sdk.Datum(model_input=given, loss_fn_inputs={"target_tokens": targets, **inputs})

    def logp(self, sequences: Sequence[Tokens]) -> list[Tensor]:
        """[n - 1] float32 log-probabilities of each sequence under the current weights, without gradient."""
        data = [self.datum(tokens, weights=torch.zeros(len(tokens) - 1)) for tokens in sequences]

        def forward() -> list[Any]:
            return [
                out["logprobs"].data for out in self.training.forward(data, "cross_entropy").result().loss_fn_outputs
            ]

        return check_logps("a forward pass", self.server.ask("score", forward, patience(sequences)), targets(sequences))

    def backward(self, sequences: Sequence[Tokens], loss: Loss) -> None:
        """Add the gradient of a loss of the log-probabilities to what the server has accumulated.

        It waits for the server: SkyRL 0.4 may take an optimizer step that is sent right behind before the gradient.
        """
        seconds = 2 * patience(sequences)
        if self.call == "forward_backward_custom":
            data = [self.datum(tokens) for tokens in sequences]
            raised: list[Exception] = []

            def custom(_: Any, logps: list[Tensor]) -> tuple[Tensor, dict[str, float]]:
                # the SDK calls it here, between the server's forward and its backward pass
                try:
                    return loss(check_logps("a forward pass", logps, targets(sequences))), {}
                except Exception as problem:
                    raised.append(problem)
                    raise

            try:
                self.server.ask(
                    "take a gradient", lambda: self.training.forward_backward_custom(data, custom).result(), seconds
                )
            except ComponentDied:
                if raised:  # a mistake in the objective is not the server's
                    raise raised[0] from None
                raise
            return
        logps = [values.requires_grad_() for values in self.logp(sequences)]
        loss(logps).backward()
        if not any(values.grad is not None and bool(values.grad.any()) for values in logps):
            return  # sequences without a gradient would count in the average of the next call
        # d/dlogp of -(ratio * advantage), averaged, is -advantage / (tokens * sequences) where the ratio is 1
        data = [
            self.datum(tokens, logprobs=values.detach(), advantages=-values.grad * len(values) * len(sequences))
            for tokens, values in zip(sequences, logps, strict=True)
            if values.grad is not None
        ]
        self.server.ask(
            "take a gradient", lambda: self.training.forward_backward(data, "importance_sampling").result(), seconds
        )

    def step(self, **adam: float) -> float:
        """Take a step of AdamW with what was accumulated, and clear it; returns the gradient's norm, or NaN."""
        params = self.sdk.AdamParams(**adam)
        return check_norm(self.server.ask("step", lambda: self.training.optim_step(params).result().metrics))

    def save(self, name: str) -> str:
        """Save weights and optimizer on the server; returns the path to load them from."""
        return check_path(self.server.ask("save its state", lambda: self.training.save_state(name).result().path))

    def load(self, path: str) -> None:
        """Restore weights and optimizer; only as the first call of a client."""
        self.server.ask("restore a state", lambda: self.training.load_state_with_optimizer(path).result())

    def sampler(self) -> Any:
        """A sampler of the current weights. Only the newest may be used: SkyRL trains on what it last sampled from."""
        return self.server.ask("make a sampler", lambda: ready(self.training.save_weights_and_get_sampling_client()))

    def base_sampler(self, model: str) -> Any:
        """A sampler of the model without adapters."""
        return self.server.ask("make a sampler", lambda: ready(self.service.create_sampling_client(base_model=model)))


def targets(sequences: Sequence[Tokens]) -> list[int]:
    """How many log-probabilities each sequence has."""
    return [len(tokens) - 1 for tokens in sequences]


def patience(sequences: Sequence[Tokens]) -> float:
    """Seconds for a pass over these sequences."""
    return LONGEST + sum(map(len, sequences)) / READ


def connect(spec: LLMSpec) -> Callable[[], TrainingClient]:
    """A function that makes new models with adapters on the server of [remote], all equal.

    Raises:
        UsageError: the server does not have the model.
        EnvironmentLacks: the SDK, a key or the server is missing, or the server refuses to train the model.
    """
    url, model = spec.remote.url, spec.remote.model or spec.model.path
    os.environ.setdefault("TINKER_TELEMETRY", "0")
    no_telemetry()
    tinker = sdk()
    key = os.environ.get(KEY, "")
    if not key.startswith("tml-"):
        what = "is not set" if not key else "does not begin with tml-"
        raise EnvironmentLacks(f"{KEY} {what}; export the key of the service, or any tml-... for a server of your own")
    server = Server(str(url))
    contact: dict[str, Any] = {"error": EnvironmentLacks, "remedy": "start it, or correct --url, or the key"}
    server.ask("answer", lambda: check_health(server.url), 2 * SECONDS, **contact)
    service, models = server.ask("say which models it has", lambda: supported(tinker, server, key), CONTACT, **contact)
    if model not in models:
        held = ", ".join(str(name) for name in models[:5]) or "none"
        raise UsageError(
            f"the server at {url} does not have the model {short(model)} (it has {held}); give --model, "
            "or remote.model if the server has another name for it"
        )

    def make() -> TrainingClient:
        rank = spec.lora.rank

        def create() -> Any:
            return ready(service.create_lora_training_client(base_model=model, rank=rank, seed=spec.run.seed))

        remedy = "lower lora.rank, or take another server"
        what = f"make a model with lora.rank {rank}"
        return TrainingClient(service, server.ask(what, create, CONTACT, EnvironmentLacks, remedy), server)

    return make


def sdk() -> ModuleType:
    """The Tinker SDK."""
    try:
        return import_module("tinker")
    except ModuleNotFoundError as missing:
        if missing.name != "tinker":
            raise
        raise EnvironmentLacks(
            "--backend tinker needs tinker, which is not installed: pip install 'tinker>=0.25'"
        ) from missing


def check_health(url: str) -> None:
    """Raise if no server answers; the next call shows which server it is."""
    with suppress(HTTPError):
        urlopen(f"{url}/api/v1/healthz", timeout=SECONDS).close()


def supported(tinker: Any, server: Server, key: str) -> tuple[Any, list[str]]:
    """A client of the SDK, and the names of the server's models."""
    service = tinker.ServiceClient(base_url=server.url, api_key=key, http_client=server.http_client())
    return service, [str(found.model_name) for found in service.get_server_capabilities().supported_models]


def ready(client: Any) -> Any:
    """The client itself; newer versions of the SDK return a future of it."""
    return client.result() if hasattr(client, "result") else client
