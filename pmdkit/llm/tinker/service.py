"""A model on a Tinker server: its log-probabilities, its gradient, an optimizer step, its state, and samplers of it.

The only file that imports the SDK. Sequences are prompt and response together, and a sequence of n tokens has n - 1
log-probabilities: those of its tokens but the first.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import torch
from torch import Tensor

from pmdkit.errors import ComponentDied, EnvironmentLacks, PmdkitError, UsageError, first_line, printable, short
from pmdkit.extras import need
from pmdkit.llm.engines.base import Tokens
from pmdkit.observe.telemetry import no_telemetry
from pmdkit.specs import LLMSpec

KEY = "TINKER_API_KEY"
SECONDS = 10.0  # for the first answer of a server; the SDK itself would try for minutes

Loss = Callable[[list[Tensor]], Tensor]
"Takes the log-probabilities of each sequence and returns a scalar with gradient."


class TrainingClient:
    """A model with adapters on a server.

    Args:
        service, training: clients of the SDK.
        url: for messages.

    Attributes:
        call: how a gradient is taken: "forward_backward_custom", or "importance_sampling" with ratio 1, whose loss a
            server averages over the tokens of a sequence and over the sequences.
    """

    def __init__(self, service: Any, training: Any, url: str) -> None:
        self.sdk = need("tinker", "--backend tinker")
        self.service, self.training, self.url = service, training, url
        self.call = "forward_backward_custom"

    def datum(self, tokens: Tokens, **inputs: Tensor) -> Any:
        """A sequence, whose targets are its tokens shifted by one; `inputs` are [n - 1] numbers of the loss."""
        given = self.sdk.ModelInput.from_ints(list(tokens[:-1]))
        targets = torch.tensor(list(tokens[1:]), dtype=torch.int64)
        return self.sdk.Datum(model_input=given, loss_fn_inputs={"target_tokens": targets, **inputs})

    def logp(self, sequences: Sequence[Tokens]) -> list[Tensor]:
        """[n - 1] float32 log-probabilities of each sequence under the current weights, without gradient."""
        data = [self.datum(tokens, weights=torch.zeros(len(tokens) - 1)) for tokens in sequences]
        with answering(self.url):
            outputs = self.training.forward(data, "cross_entropy").result().loss_fn_outputs
        return [torch.tensor(list(out["logprobs"].data), dtype=torch.float32) for out in outputs]

    def backward(self, sequences: Sequence[Tokens], loss: Loss) -> None:
        """Add the gradient of a loss of the log-probabilities to what the server has accumulated.

        It waits for the server: SkyRL 0.4 may take an optimizer step that is sent right behind before the gradient.
        """
        with answering(self.url):
            if self.call == "forward_backward_custom":
                data = [self.datum(tokens) for tokens in sequences]
                # the callback runs here, between the server's forward and its backward pass
                self.training.forward_backward_custom(data, lambda _, logps: (loss(logps), {})).result()
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
            self.training.forward_backward(data, "importance_sampling").result()

    def step(self, **adam: float) -> float:
        """Take a step of AdamW with what was accumulated, and clear it; returns the gradient's norm, or NaN."""
        with answering(self.url):
            metrics = self.training.optim_step(self.sdk.AdamParams(**adam)).result().metrics or {}
        return next((float(value) for name, value in metrics.items() if name.endswith("grad_norm")), float("nan"))

    def save(self, name: str) -> str:
        """Save weights and optimizer on the server; returns the path to load them from."""
        with answering(self.url):
            return str(self.training.save_state(name).result().path)

    def load(self, path: str) -> None:
        """Restore weights and optimizer; only as the first call of a client."""
        with answering(self.url):
            self.training.load_state_with_optimizer(path).result()

    def sampler(self) -> Any:
        """A sampler of the current weights. Only the newest may be used: SkyRL trains on what it last sampled from."""
        with answering(self.url):
            return ready(self.training.save_weights_and_get_sampling_client())

    def base_sampler(self, model: str) -> Any:
        """A sampler of the model without adapters."""
        with answering(self.url):
            return ready(self.service.create_sampling_client(base_model=model))


def connect(spec: LLMSpec) -> Callable[[], TrainingClient]:
    """What makes new models with adapters on the server of [tinker], all equal.

    Raises:
        UsageError: the server does not have the model, or refuses to train it.
        EnvironmentLacks: the SDK, a key or the server is missing.
    """
    url, model = spec.tinker.url, spec.tinker.model or spec.model.path
    os.environ.setdefault("TINKER_TELEMETRY", "0")
    no_telemetry()
    sdk = need("tinker", "--backend tinker")
    key = os.environ.get(KEY, "")
    if not key.startswith("tml-"):
        what = "is not set" if not key else "does not begin with tml-"
        raise EnvironmentLacks(f"{KEY} {what}; export the key of the service, or any tml-... for a server of your own")
    try:
        urlopen(f"{url}/api/v1/healthz", timeout=SECONDS).close()
    except HTTPError:
        pass  # it answers; what it is, the next call shows
    except (URLError, OSError, ValueError) as problem:
        raise EnvironmentLacks(
            f"no server answers at {url} ({first_line(problem)}); start it, or correct --url"
        ) from None
    service = sdk.ServiceClient(base_url=url, api_key=key)
    try:
        models = [found.model_name for found in service.get_server_capabilities().supported_models]
        if model not in models:
            held = ", ".join(str(name) for name in models[:5]) or "none"
            raise UsageError(
                f"the server at {url} does not have the model {short(model)} (it has {held}); give --model, "
                "or tinker.model if the server has another name for it"
            )
    except sdk.TinkerError as problem:
        why = printable(first_line(problem))
        raise UsageError(
            f"{url} does not answer as a Tinker server does ({why}); correct --url, or the key"
        ) from problem

    def make() -> TrainingClient:
        rank = spec.lora.rank
        try:
            training = service.create_lora_training_client(base_model=model, rank=rank, seed=spec.run.seed)
            return TrainingClient(service, ready(training), str(url))
        except sdk.TinkerError as problem:
            why = printable(first_line(problem))
            raise UsageError(f"the server at {url} refuses {model} with lora.rank {rank}: {why}") from problem

    return make


def ready(client: Any) -> Any:
    """A client, which newer versions of the SDK give as a future."""
    return client.result() if hasattr(client, "result") else client


@contextmanager
def answering(url: str) -> Iterator[None]:
    """Raise ComponentDied if the server fails in the block, after the SDK's own retries."""
    try:
        yield
    except PmdkitError:
        raise
    except (need("tinker", "--backend tinker").TinkerError, TimeoutError, OSError) as problem:
        raise ComponentDied(
            f"the Tinker server at {url} failed ({printable(first_line(problem))}); the last checkpoint is intact: "
            "run again with --resume"
        ) from problem
