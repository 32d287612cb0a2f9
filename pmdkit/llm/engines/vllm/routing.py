"""Where engine and trainer send a token to different experts: measured, since it moves log-probabilities by nats.

Both sides compute the same router on slightly different numbers; at a near tie another expert is chosen. Trainer side:
hooks on the routers of transformers. Engine side: hooks on vLLM's in eager mode, or what vLLM itself returns.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from pmdkit.errors import EnvironmentLacks, UsageError
from pmdkit.llm.engines.protocol import Tokens

OPTION = "enable_return_routed_experts"


def mismatch(engine: Any, model: PreTrainedModel, prompts: Sequence[Tokens], responses: Sequence[Tokens]) -> float:
    """Share of (token, layer) places at which engine and trainer choose different sets of experts.

    Args:
        engine: an InsideEngine with these weights.
        model: the trainer's, as it computes.
        prompts: N.
        responses: N; all places of prompt and response count but the last token's, from which nothing is predicted.

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
    from pmdkit.llm.scoring import response_logp

    found, k = routers(model), top_k(model.config)
    chosen: list[Tensor] = []
    with caught(found, lambda output: chosen.append(experts(output, k))), torch.no_grad():
        response_logp(model, [list(tokens[:1])], [list(tokens[1:])])
    return torch.stack(chosen, 1)


def engine_routes(engine: Any, tokens: Sequence[int]) -> Tensor:
    """[T or T - 1, layers, k] experts of each token, in the engine."""
    wanted = engine.wanted
    if wanted.vllm.options.get(OPTION):
        return returned(engine, tokens)
    if not (wanted.vllm.eager or engine.phases.llm.llm_engine.model_config.enforce_eager):
        raise EnvironmentLacks(
            f"routes of compiled graphs are not seen from outside; set vllm.options.{OPTION} = true, or vllm.eager"
        )
    inner = engine.llm.llm_engine.model_executor.driver_worker.model_runner.model
    k = top_k(wanted.model.config)
    chosen: list[Tensor] = []
    engine.llm.reset_prefix_cache()  # every token is to pass the routers
    with caught(routers(inner), lambda output: chosen.append(experts(output, k))):
        engine.score([list(tokens[:1])], [list(tokens[1:])])
    return torch.stack(chosen, 1).cpu()


def returned(engine: Any, tokens: Sequence[int]) -> Tensor:
    """What vLLM returns beside a response of one token."""
    from vllm import SamplingParams

    how = SamplingParams(max_tokens=1, temperature=0.0, ignore_eos=True, **engine.plain())
    found = engine.write([list(tokens)], [how], None)[0].outputs[0].routed_experts
    if found is None:
        raise EnvironmentLacks(f"this vLLM returns no routes, although {OPTION} is set; use its model runner 2")
    return torch.from_numpy(np.asarray(found).astype(np.int64))


def routers(model: nn.Module) -> list[nn.Module]:
    """The routers of a model, first layer first: modules called gate that choose among experts, not a gate_proj."""
    found = [module for name, module in model.named_modules() if name.endswith((".gate", ".router"))]
    if not found:
        raise UsageError("the model has no routers: it is dense, or calls them otherwise than gate or router")
    return found


def experts(output: Any, k: int) -> Tensor:
    """[T, k] chosen experts, from what a router returns: its logits, alone or first of several."""
    scores = output[0] if isinstance(output, tuple) else output
    chosen: Tensor = scores.detach().float().flatten(0, -2).topk(k, dim=-1).indices
    return chosen


def top_k(config: Any) -> int:
    """Experts that each token is sent to."""
    for name in ("num_experts_per_tok", "moe_topk", "top_k"):
        if isinstance(found := getattr(config.get_text_config(), name, None), int):
            return found
    raise UsageError(f"{type(config).__name__} does not say how many experts a token is sent to")


@contextmanager
def caught(modules: Sequence[nn.Module], see: Any) -> Iterator[None]:
    """Whatever these modules return inside the block is shown to `see`."""
    hooks = [module.register_forward_hook(lambda module, given, output: see(output)) for module in modules]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
