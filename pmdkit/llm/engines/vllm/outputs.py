"""Convert and check vLLM's outputs token by token, and compare expert routes of engine and trainer."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import isfinite
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from pmdkit.errors import EnvironmentLacks, UsageError
from pmdkit.llm.engines.base import EngineLost, Responses, Tokens


def to_responses(outputs: Sequence[Any], ends: Sequence[int], width: int, version: int) -> Responses:
    """Responses from finished outputs, in row order; strictly checked, since a wrong number would train a wrong policy.

    Args:
        outputs: N `CompletionOutput` of vLLM.
        ends: tokens that end a response; the first pads rows.
        width: budget, tokens.
        version: of the weights that must have written them.

    Raises:
        EngineLost: a log-probability is missing, not finite or positive; a row is empty, too long, continues after an
            end, stops without one, or was written by other weights.
    """
    last = set(ends)
    rows = []
    for row, output in enumerate(outputs):
        tokens = list(output.token_ids)
        spans = getattr(output, "weight_versions", None)  # None from a vLLM that does not write them
        if spans is not None and {span.version for span in spans} != {str(version)}:
            found = [span.version for span in spans]
            raise EngineLost(f"row {row} was written by weights of versions {found}; expected version {version} alone")
        ended = bool(tokens) and tokens[-1] in last
        if not tokens or len(tokens) > width or not (ended or len(tokens) == width) or last & set(tokens[:-1]):
            raise EngineLost(
                f"vLLM answers row {row} with {len(tokens)} tokens of {width}, last {tokens[-1:]}, reason "
                f"{output.finish_reason}; expected one of {sorted(last)} at the end, or the whole budget"
            )
        rows.append((tokens, token_logps(row, tokens, output.logprobs), ended))
    longest = max(len(tokens) for tokens, _, _ in rows)
    return Responses(
        tokens=torch.tensor([tokens + [ends[0]] * (longest - len(tokens)) for tokens, _, _ in rows]),
        logp=torch.tensor([logp + [0.0] * (longest - len(logp)) for _, logp, _ in rows], dtype=torch.float32),
        mask=torch.arange(longest) < torch.tensor([len(tokens) for tokens, _, _ in rows])[:, None],
        ended=torch.tensor([ended for _, _, ended in rows]),
        version=version,
    )


def token_logps(row: int, tokens: Sequence[int], found: Any) -> list[float]:
    """Log-probabilities of one row's tokens, from vLLM's flat lists or from one small dictionary per token."""
    if found is None or len(found) != len(tokens):
        raise EngineLost(f"vLLM answers row {row} with {len(tokens)} tokens and not as many log-probabilities")
    if getattr(found, "token_ids", None) == list(tokens):
        numbers = list(found.logprobs)
    else:
        numbers = [
            entry[token].logprob if entry and token in entry else float("nan")
            for entry, token in zip(found, tokens, strict=True)
        ]
    for place, number in enumerate(numbers):
        if number is None or not isfinite(number) or number > 0:
            raise EngineLost(
                f"vLLM answers row {row} with log-probability {number} for token {place}, id {tokens[place]}; "
                "expected a finite number of at most 0: the engine, or the weights it was given, are broken"
            )
    return numbers


# Engine and trainer may send a token to different experts, which moves its log-probability by nats: both compute the
# same router on slightly different numbers, and at a near tie another expert wins. Hooks on the routers of transformers
# record the trainer's choice. Hooks on vLLM's routers record the engine's in eager mode, or vLLM itself returns it.

ROUTES_OPTION = "enable_return_routed_experts"


def routing_mismatch(
    engine: Any, model: PreTrainedModel, prompts: Sequence[Tokens], responses: Sequence[Tokens]
) -> float:
    """Share of (token, layer) places at which engine and trainer choose different sets of experts.

    Args:
        engine: a ColocatedEngine with these weights.
        model: the trainer's, in the precision in which it computes.
        prompts: N.
        responses: N; all tokens of prompt and response count except the last, from which nothing is predicted.

    Raises:
        UsageError: the model has no routers.
        EnvironmentLacks: the engine runs compiled graphs and does not return its routes.
    """
    different = places = 0
    for prompt, response in zip(prompts, responses, strict=True):
        tokens = [*prompt, *response]
        mine = trainer_routes(model, tokens)
        theirs = engine_routes(engine, tokens)[: len(mine)]
        other = (mine.sort(-1).values != theirs.sort(-1).values).any(-1)  # [T, layers]
        different, places = different + int(other.sum()), places + other.numel()
    return different / places


def trainer_routes(model: PreTrainedModel, tokens: Sequence[int]) -> Tensor:
    """[T - 1, layers, k] experts of each token but the last, in the trainer."""
    from pmdkit.llm.logprobs import response_logp

    found, k = routers(model), experts_per_token(model.config)
    chosen: list[Tensor] = []
    with record_outputs(found, lambda output: chosen.append(chosen_experts(output, k))), torch.no_grad():
        response_logp(model, [list(tokens[:1])], [list(tokens[1:])])
    return torch.stack(chosen, 1)


def engine_routes(engine: Any, tokens: Sequence[int]) -> Tensor:
    """[T or T - 1, layers, k] experts of each token, in the engine."""
    config = engine.config
    if config.vllm.options.get(ROUTES_OPTION):
        return returned_routes(engine, tokens)
    if not (config.vllm.eager or engine.llm.llm_engine.model_config.enforce_eager):
        raise EnvironmentLacks(
            f"routes of compiled graphs cannot be observed; set vllm.options.{ROUTES_OPTION} = true, or vllm.eager"
        )
    inner = engine.llm.llm_engine.model_executor.driver_worker.model_runner.model
    k = experts_per_token(config.model.config)
    chosen: list[Tensor] = []
    engine.llm.reset_prefix_cache()  # so that every token passes the routers
    with record_outputs(routers(inner), lambda output: chosen.append(chosen_experts(output, k))):
        engine.score([list(tokens[:1])], [list(tokens[1:])])
    return torch.stack(chosen, 1).cpu()


def returned_routes(engine: Any, tokens: Sequence[int]) -> Tensor:
    """The routes that vLLM returns with a response of one token."""
    from vllm import SamplingParams

    how = SamplingParams(max_tokens=1, temperature=0.0, ignore_eos=True, **engine.request_defaults())
    found = engine.run_requests([list(tokens)], [how], None)[0].outputs[0].routed_experts
    if found is None:
        raise EnvironmentLacks(f"this vLLM returns no routes, although {ROUTES_OPTION} is set; use its model runner 2")
    return torch.from_numpy(np.asarray(found).astype(np.int64))


def routers(model: nn.Module) -> list[nn.Module]:
    """The routers of a model, first layer first: modules called gate that choose among experts, not a gate_proj."""
    found = [module for name, module in model.named_modules() if name.endswith((".gate", ".router"))]
    if not found:
        raise UsageError("the model has no routers: it is dense, or calls them neither gate nor router")
    return found


def chosen_experts(output: Any, k: int) -> Tensor:
    """[T, k] chosen experts, from what a router returns: its logits, alone or first in a tuple."""
    scores = output[0] if isinstance(output, tuple) else output
    chosen: Tensor = scores.detach().float().flatten(0, -2).topk(k, dim=-1).indices
    return chosen


def experts_per_token(config: Any) -> int:
    """Experts that each token is sent to."""
    for name in ("num_experts_per_tok", "moe_topk", "top_k"):
        if isinstance(found := getattr(config.get_text_config(), name, None), int):
            return found
    raise UsageError(f"{type(config).__name__} does not say how many experts a token is sent to")


@contextmanager
def record_outputs(modules: Sequence[nn.Module], record: Any) -> Iterator[None]:
    """Call `record` with whatever these modules return inside the block."""
    hooks = [module.register_forward_hook(lambda module, given, output: record(output)) for module in modules]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
