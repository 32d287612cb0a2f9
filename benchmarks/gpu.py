"""Benchmarks that need a GPU, in parts: loss (G1, G2), training step (G3), engines (G4), solver (G5), two recipes.

    python benchmarks/gpu.py --part head            # measure one part; first_hour.py goes through all
    python benchmarks/gpu.py --part head --tiny     # in miniature on a CPU: tests the script, yields no results

Each row is written as soon as it is measured. Where the planner predicts what is measured, another row has the ratio of
the prediction to the measurement. Weights are random, except the starter's, which are trained; nothing is downloaded.

Kept because rows gpu/ hold the goals G1 to G5 on an accelerator.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import record as records
from harness.clock import Reading, turns
from harness.limits import gemm_rate, products
from harness.machine import load, machine, versions
from harness.memory import peak_above
from harness.rows import CLAIMS, Measured, benchmark_of, claims
from head_ways import Inputs, Way, fused, inputs, peers, ragged, through
from table import GPU_RECORD

from pmdkit.errors import EnvironmentLacks

GIB = 2**30
HERE = Path(__file__).parent
CUDA = torch.cuda.is_available()
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "VLLM_NO_USAGE_STATS": "1"}


@dataclass(frozen=True)
class Scale:
    """Sizes of all workloads.

    Attributes:
        tokens, vocabulary, widths: of the loss through the head; the largest width last.
        dense, mixture, small: model shapes, see `SHAPES`.
        budget: tokens of a packed micro-batch, `update.token_budget`.
        update: prompts, responses per prompt and response width of a training step.
        rollout: the same for the rollouts of engines.
        arms: contexts and actions of the exact solver.
        dtype: in which the model computes.
        rounds: of each measurement.
        tiny: whether these are the miniature sizes for a CPU.
    """

    tokens: int = 16_384
    vocabulary: int = 151_936
    widths: tuple[int, ...] = (896, 3584)
    dense: str = "qwen2-1.5b"
    mixture: str = "qwen3-moe-1.6b"
    small: str = "qwen2-0.5b"
    budget: int = 16_384
    update: tuple[int, int, int] = (16, 16, 2048)
    rollout: tuple[int, int, int] = (16, 16, 1024)
    arms: tuple[int, int] = (10_000, 10_000)
    dtype: str = "bfloat16"
    rounds: int = 3
    tiny: bool = False


TINY = Scale(
    tokens=256,
    vocabulary=512,
    widths=(32, 64),
    dense="tiny",
    mixture="tiny-moe",
    small="tiny",
    budget=512,
    update=(4, 4, 48),
    rollout=(4, 4, 24),
    arms=(20, 5000),
    dtype="float32",
    rounds=1,
    tiny=True,
)

# Sizes of Qwen2.5 and Qwen3-MoE; the mixture is narrowed so that its training state fits on one accelerator.
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen2-0.5b": ("Qwen2Config", {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
        "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151_936, "tie_word_embeddings": True}),
    "qwen2-1.5b": ("Qwen2Config", {"hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28,
        "num_attention_heads": 12, "num_key_value_heads": 2, "vocab_size": 151_936, "tie_word_embeddings": True}),
    "qwen3-moe-1.6b": ("Qwen3MoeConfig", {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 16,
        "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151_936,
        "moe_intermediate_size": 384, "num_experts": 64, "num_experts_per_tok": 8, "tie_word_embeddings": True}),
    "tiny": ("Qwen2Config", {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 512, "tie_word_embeddings": True}),
    "tiny-moe": ("Qwen3MoeConfig", {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "vocab_size": 512,
        "moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2, "tie_word_embeddings": True}),
}  # fmt: skip

RECIPE = """
[env]
kind = "arithmetic"
problems = {problems}
[model]
path = "{folder}"
dtype = "{dtype}"
checkpointing = {checkpointing}
[objective]
name = "pmd-mean"
tau = 0.05
[schedule]
steps = 1
prompts = {prompts}
group = {group}
ministeps = 1
lr = 1e-6
optimizer = "adamw"
[rollout]
engine = "{engine}"
width = {width}
max_prompt = 256
canary = 0
[update]
token_budget = {budget}
[vllm]
memory = 0.6
[evaluation]
problems = 8
"""


# The device: timing, memory, peak rate.


def wait() -> None:
    """Wait until the device has finished all its work."""
    if CUDA:
        torch.cuda.synchronize()


def timed(calls: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, list[Reading]]:
    """Readings of calls that take turns, synchronised with the device, after an uncounted warm-up round."""

    def whole(call: Callable[[], Any]) -> Callable[[], None]:
        def run() -> None:
            wait()
            call()
            wait()

        return run

    return turns({name: whole(call) for name, call in calls.items()}, rounds, warm_up=True)


def seconds(readings: list[Reading]) -> list[float]:
    """Wall-clock seconds of readings."""
    return [reading.wall for reading in readings]


def over(some: list[Reading], others: list[Reading]) -> list[float]:
    """[rounds] wall-clock seconds of `some` divided by those of `others`."""
    return [one / other for one, other in zip(seconds(some), seconds(others), strict=True)]


def peak_gib(call: Callable[[], Any], given: Inputs) -> float:
    """Peak memory of a call above its inputs, in GiB."""
    forget(given)
    if not CUDA:
        return peak_above(call) / 1024
    wait()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    wait()
    return (torch.cuda.max_memory_allocated() - before) / GIB


def device() -> str:
    """The device of all computations."""
    return "cuda" if CUDA else "cpu"


def card() -> str:
    """The planner's name of the accelerator; an H100 for the miniature runs on a CPU."""
    from pmdkit_lab.planner.data_sheets import GPUS

    name = torch.cuda.get_device_name().replace(" ", "").upper() if CUDA else "H100"
    return next((known for known in sorted(GPUS, key=len, reverse=True) if known.upper() in name), "H100")


@cache
def peak_rate() -> float:
    """Peak FLOP/s: dense bfloat16 from the data sheet; on a CPU, the measured rate of its matrix products."""
    from pmdkit_lab.planner.data_sheets import GPUS

    return GPUS[card()].flops if CUDA else gemm_rate(512, 256, 512)


# Models with random weights, and recipes that use them.


def folder_for(shape: str, place: Path) -> Path:
    """A Hugging Face folder with a model of that shape; the tokenizer is the starter's, smaller than the vocabulary."""
    out = place / shape
    if out.exists():
        return out
    import transformers

    from pmdkit.envs.math import make_math
    from pmdkit.llm.starter.tokenizer import train_tokenizer

    tokenizer = train_tokenizer(make_math({"kind": "arithmetic", "problems": 2000}))
    kind, numbers = SHAPES[shape]
    config = getattr(transformers, kind)(
        max_position_embeddings=4096,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        **numbers,
    )
    torch.manual_seed(0)
    with torch.device(device()):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    return out


def made(scale: Scale, shape: str, place: Path, size: tuple[int, int, int], **changes: Any) -> tuple[Any, Any]:
    """A resolved spec of that shape, and its objective and backend: model, engine, learner, task."""
    from pmdkit.llm.backend import make_backend
    from pmdkit.resolve import resolve

    prompts, group, width = size
    told = {"engine": "transformers", "checkpointing": "true", "budget": scale.budget, **changes}
    text = RECIPE.format(
        folder=folder_for(shape, place),
        dtype=scale.dtype,
        prompts=prompts,
        group=group,
        width=width,
        problems=max(300, 2 * prompts),
        **told,
    )
    path = place / f"{shape}.toml"
    path.write_text(text)
    spec, objective = resolve("llm", str(path), {})
    return spec, (objective, make_backend(spec, objective))


def predicted(spec: Any, tokens: float, prompt: int) -> dict[str, Any]:
    """The report of `pmdkit plan` on a spec and this accelerator, for responses of `tokens` tokens on average."""
    from pmdkit_lab.planner import cluster, predict, workload

    found = predict.Prediction(
        workload.sizes_of(spec),
        workload.work_of(spec, prompt),
        workload.lengths("direct", spec.rollout.width, tokens),
        cluster.cluster(f"1x{card()}"),
    )
    return predict.report(spec, found)


# The parts.


def head(scale: Scale, place: Path) -> Iterator[Measured]:
    """G1 and G2: the loss through the head, forward and backward, bfloat16 in and float32 logits."""
    for width in scale.widths:
        end = "" if width == scale.widths[-1] else "-narrow"
        with torch.device(device()):
            given = inputs(scale.tokens, scale.vocabulary, width, torch.bfloat16)
            alone, flop = products(scale.tokens, width, scale.vocabulary, "bfloat16")
        lengths = ragged(scale.tokens)
        ways: dict[str, Way] = {"pmdkit": fused(lengths, None)}
        ways |= {name: through(logp, lengths) for name, logp in peers().items()}
        calls = {name: passes(way, given) for name, way in ways.items()}
        agree(calls, given)
        gradients = sum(tensor.numel() * tensor.element_size() for tensor in given[:2]) / GIB
        peaks = {name: peak_gib(call, given) for name, call in calls.items()}
        forget(given)
        found = timed({"products": alone, **calls}, scale.rounds)
        rate = flop / min(seconds(found["products"]))
        times = over(found["pmdkit"], found["products"])
        limit = f"{1e3 * min(seconds(found['products'])):.1f} ms, {rate / 1e12:.0f} TFLOP/s"
        milliseconds = [1e3 * value for value in seconds(found["pmdkit"])]
        yield Measured(f"gpu/head{end}", milliseconds, {"seconds": found, "peak GiB": peaks}, limit, times)
        note = ", ".join(f"{name} {peak - gradients:.2f}" for name, peak in peaks.items() if name != "pmdkit")
        yield Measured(f"gpu/peak{end}", [peaks["pmdkit"] - gradients], note=note)
        for name in ("TRL", "Liger"):
            if name in found:
                yield Measured(f"gpu/{name.lower()}{end}", over(found[name], found["pmdkit"]))
            else:
                yield Measured(f"gpu/{name.lower()}{end}", failed=f"{name} is not installed")


def passes(way: Way, given: Inputs) -> Callable[[], None]:
    """A call of one way, forward and backward; it leaves the gradients in the inputs."""

    def call() -> None:
        forget(given)
        way(*given).backward()

    return call


def forget(given: Inputs) -> None:
    """Clear the gradients of the inputs."""
    for tensor in given[:2]:
        tensor.grad = None


def agree(calls: Mapping[str, Callable[[], None]], given: Inputs) -> None:
    """Check that all calls leave the same gradients, up to bfloat16 rounding."""
    expected: list[torch.Tensor] = []
    for call in calls.values():
        call()
        gradient = [tensor.grad[::64].float().clone() for tensor in given[:2] if tensor.grad is not None]
        expected = expected or gradient
        for one, other in zip(gradient, expected, strict=True):
            torch.testing.assert_close(one, other, atol=0.05 * float(other.abs().max()), rtol=0)


def step(scale: Scale, place: Path) -> Iterator[Measured]:
    """G3: one ministep of `pmdkit llm` on packed micro-batches, clipping and AdamW included, in % of the peak rate."""
    for shape, name in ((scale.dense, "dense"), (scale.mixture, "mixture")):
        found = None
        with suppress_out_of_memory():
            found = list(one_step(scale, place, shape, name, "false"))
        if found is None:  # the first attempt has freed its device memory by now
            if CUDA:
                torch.cuda.empty_cache()
            found = list(one_step(scale, place, shape, name, "true"))
        yield from found


@contextmanager
def suppress_out_of_memory() -> Iterator[None]:
    """Report an out-of-memory error and carry on, so that other settings can be tried."""
    try:
        yield
    except (torch.OutOfMemoryError, EnvironmentLacks) as problem:
        print(f"    {str(problem)[:200]}", flush=True)


def one_step(scale: Scale, place: Path, shape: str, name: str, checkpointing: str) -> Iterator[Measured]:
    """The rows of one model."""
    spec, (objective, backend) = made(scale, shape, place, scale.update, checkpointing=checkpointing)
    learner = backend.learner
    rollouts, batch, lengths = written(learner, objective, scale)
    if CUDA:
        torch.cuda.reset_peak_memory_stats()
    found = timed({"update": lambda: learner.update(objective, rollouts, batch)}, scale.rounds)["update"]
    peak = torch.cuda.max_memory_allocated() / GIB if CUDA else 0.0
    prompt = sum(map(len, learner.prompt_tokens(rollouts.prompts))) / len(rollouts.prompts)
    from pmdkit_lab.planner.workload import sizes_of

    flop = 3 * forward_flop(sizes_of(spec), lengths, prompt, scale.update[1])
    shares = [100 * flop / value / peak_rate() for value in seconds(found)]
    tokens = int(lengths.sum())
    kept = "activations recomputed" if checkpointing == "true" else "activations kept"
    note = f"{tokens / min(seconds(found)):,.0f} response tokens a second, {kept}"
    yield Measured(f"gpu/mfu-{name}", shares, {"seconds": found, "FLOP": flop, "peak GiB": peak}, note=note)
    told = predicted(spec, float(lengths.mean()), round(prompt))
    ratio = [told["seconds_update"] / value for value in seconds(found)]
    note = f"predicted {told['seconds_update']:.3g} s, measured {min(seconds(found)):.3g} s"
    yield Measured(f"gpu/update-predicted-{name}", ratio, note=note)
    if CUDA:
        guess = told["memory_gib"]["update"]
        note = f"predicted {guess:.3g} GiB, the allocator's peak {peak:.3g} GiB"
        yield Measured(f"gpu/memory-predicted-{name}", [guess / peak], note=note)
    else:
        yield Measured(f"gpu/memory-predicted-{name}", failed="a CPU has no allocator that counts")
    backend.task.grader.close()


def forward_flop(sizes: Any, lengths: np.ndarray, prompt: float, group: int) -> float:
    """FLOP of one forward pass: each prompt is read once per group, and the head sees response tokens only."""
    head_flop = 2.0 * sizes.vocabulary * sizes.dimension
    rows, prompts = len(lengths), len(lengths) / group
    read = (2.0 * sizes.products - head_flop) * (lengths.sum() - rows + prompt * prompts)
    attended = 2.0 * sizes.layers * sizes.attention * float(((lengths + prompt) ** 2 - prompt**2).sum())
    return float(read + attended + head_flop * lengths.sum())


def written(learner: Any, objective: Any, scale: Scale) -> tuple[Any, Any, np.ndarray]:
    """Rollouts of random tokens and heavy-tailed lengths, as an engine with these weights might have written them."""
    from pmdkit.loop import Rollouts, graded
    from pmdkit.objectives import credit
    from pmdkit.randomness import generator

    prompts, group, width = scale.update
    rows = prompts * group
    lengths = generator(0, "lengths").lognormal(np.log(width / 3), 0.7, rows).clip(4, width).astype(int)
    mask = torch.arange(width) < torch.tensor(lengths)[:, None]
    tokens = torch.from_numpy(generator(0, "tokens").integers(3, 400, (rows, width))) * mask
    rollouts = Rollouts(
        prompts=torch.arange(prompts),
        responses=tokens,
        logp_old=torch.zeros(rows, width),
        mask=mask,
        mass=torch.full((prompts, group), 1 / group, dtype=torch.float64),
        sampled=True,
        seed=1,
        version=0,
        width=width,
    )
    with torch.no_grad():
        rollouts = replace(rollouts, logp_old=learner.logp(rollouts))
    reward = torch.arange(rows).view(prompts, group) % 2
    groups = graded(reward.double(), rollouts)
    batch = credit(objective, groups, rollouts.logp_old, rollouts.mask, rollouts.logp_ref, rollouts.width)
    return rollouts, batch, lengths.astype(float)


def rollouts(scale: Scale, place: Path) -> Iterator[Measured]:
    """G4: the embedded engine against `generate` of transformers, in tokens/s; only ours gives log-probabilities."""
    _, (_, backend) = made(scale, scale.small, place, scale.rollout)
    learner, (prompts, group, width) = backend.learner, scale.rollout
    request = learner.generate_request(torch.arange(prompts), group, 1)
    learner.sync_weights()
    counts: list[int] = []

    def ours() -> None:
        drawn = learner.engine.generate(request.prompts, request.group, request.seeds, request.sampling)
        counts.append(int(drawn.mask.sum()))

    calls = {"pmdkit": ours, "generate": library(folder_for(scale.small, place), scale, request)}
    found = timed(calls, scale.rounds)
    rates = [count / value for count, value in zip(counts[1:], seconds(found["pmdkit"]), strict=True)]
    peer = [prompts * group * width / value for value in seconds(found["generate"])]
    note = f"{max(rates):,.0f} and {max(peer):,.0f} tokens a second"
    yield Measured(
        "gpu/rollouts", [one / two for one, two in zip(rates, peer, strict=True)], {"seconds": found}, note=note
    )
    yield Measured("gpu/rollouts-rate", [rate / 1e3 for rate in rates])
    backend.task.grader.close()


def library(folder: Path, scale: Scale, request: Any) -> Callable[[], None]:
    """A call of `generate` on the same prompts, left-padded; no row ends before the full width."""
    from transformers import AutoModelForCausalLM

    kind = getattr(torch, scale.dtype)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=kind).to(device()).eval()
    longest = max(map(len, request.prompts))
    ids = torch.tensor([[0] * (longest - len(row)) + list(row) for row in request.prompts], device=device())
    seen = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in request.prompts], device=device())

    def call() -> None:
        with torch.inference_mode():
            model.generate(
                ids,
                attention_mask=seen,
                do_sample=True,
                top_k=0,
                num_return_sequences=request.group,
                min_new_tokens=request.sampling.width,
                max_new_tokens=request.sampling.width,
                pad_token_id=0,
            )

    return call


def vllm(scale: Scale, place: Path) -> Iterator[Measured]:
    """G4: vLLM in the trainer's process, as with `rollout.engine = "vllm"`, publishing and sleeping included."""
    keys = ("gpu/vllm-rate", "gpu/vllm-predicted", "gpu/vllm-publish", "gpu/vllm-mismatch")
    if importlib.util.find_spec("vllm") is None:
        yield from (Measured(key, failed="vllm is not installed") for key in keys)
        return
    spec, (_, backend) = made(scale, scale.small, place, scale.rollout, engine="vllm")
    learner, (prompts, group, _) = backend.learner, scale.rollout
    taken: dict[str, list[float]] = {"write": [], "publish": []}
    tokens: list[int] = []
    try:
        for version in range(scale.rounds + 1):
            learner.version = version
            wait()
            began = time.perf_counter()
            learner.engine.enter("update")
            learner.sync_metrics = None
            learner.sync_weights()
            wait()
            published = time.perf_counter()
            request = learner.generate_request(torch.arange(prompts), group, version)
            drawn = learner.engine.generate(request.prompts, request.group, request.seeds, request.sampling)
            if version:  # the first one compiles
                taken["publish"].append(published - began)
                taken["write"].append(time.perf_counter() - published)
                tokens.append(int(drawn.mask.sum()))
        rollouts = learner.rollout(torch.arange(prompts), group, scale.rounds + 1)
        worst = rollouts.measured["mismatch_max"]
    finally:
        learner.engine.close()
        backend.task.grader.close()
    rates = [count / value / 1e3 for count, value in zip(tokens, taken["write"], strict=True)]
    yield Measured("gpu/vllm-rate", rates, {"seconds": taken})
    mean, prompt = float(rollouts.mask.sum(1).double().mean()), sum(map(len, request.prompts)) / prompts
    told = predicted(spec, mean, round(prompt))["seconds_generation"]
    note = f"predicted {told:.3g} s, measured {min(taken['write']):.3g} s"
    yield Measured("gpu/vllm-predicted", [told / value for value in taken["write"]], note=note)
    yield Measured("gpu/vllm-publish", taken["publish"], note="sleep, wake and all weights")
    yield Measured("gpu/vllm-mismatch", [worst], note="largest difference of a token's log-probability")


def solver(scale: Scale, place: Path) -> Iterator[Measured]:
    """G5: the exact update in float64, by pmdkit's NumPy on the host and by the same sweeps in torch on the device."""
    from pmdkit import theory
    from pmdkit.randomness import generator

    (contexts, arms), tau = scale.arms, 0.01
    few = max(1, contexts // 100)  # the host solves a hundredth of the contexts
    pi = generator(0, "policy").gamma(0.5, 1.0, (few, arms)) + 1e-12
    pi /= pi.sum(1, keepdims=True)
    reward = generator(0, "reward").random((few, arms))
    exact = theory.pmd_mean(pi, reward, tau).log_ratio
    given = [torch.from_numpy(array).to(device()).repeat(contexts // few, 1) for array in (pi, reward)]
    ours = solve_on_device(*given, tau)[:few].cpu().numpy()
    error = float(np.abs((ours - exact) / np.maximum(1, np.abs(exact))).max())
    calls = {"torch": lambda: solve_on_device(*given, tau), "numpy": lambda: theory.pmd_mean(pi, reward, tau)}
    found = timed(calls, scale.rounds)
    entries, part = given[0].numel(), few * arms
    times = [1e9 * value / entries for value in seconds(found["torch"])]
    host = [1e9 * value / part for value in seconds(found["numpy"])]
    note = (
        f"NumPy on the host {min(host):.1f} ns; pmdkit solves on the host, the torch twin stands in benchmarks/gpu.py"
    )
    yield Measured("gpu/solver", times, {"seconds": found}, note=note)
    yield Measured("gpu/solver-error", [error])


def solve_on_device(pi: torch.Tensor, reward: torch.Tensor, tau: float, rows: int = 1000) -> torch.Tensor:
    """[S, A] log-ratios of PMD-mean, Theorem 1, `rows` contexts at a time."""
    return torch.cat([solve_rows(*part, tau) for part in zip(pi.split(rows), reward.split(rows), strict=True)])


def solve_rows(pi: torch.Tensor, reward: torch.Tensor, tau: float) -> torch.Tensor:
    """The joint Newton sweeps of `theory.pmd_mean_update.solve`, in torch.

    With delta = Delta / tau and x = lambda / tau^2: u + x e^u = delta for every action, E_pi e^u = 1 for every row.
    """
    delta = (reward - (pi * reward).sum(1, keepdim=True)) / tau
    above = (pi * delta.clamp(min=0)).sum(1, keepdim=True)
    log_x = torch.log(above)  # of the right size: lambda grows with E[Delta_+]
    u = delta - softplus_root(delta + log_x)
    for _ in range(60):
        expm1 = torch.expm1(u)
        w = torch.exp(log_x + u)
        f = u + w - delta
        inverse = 1 / (1 + w)
        slope = (pi * (expm1 + 1) * w * inverse).sum(1, keepdim=True)
        gap = (pi * expm1).sum(1, keepdim=True) - (pi * (expm1 + 1) * f * inverse).sum(1, keepdim=True)
        change = (gap / slope).clamp(-3, 3)
        log_x = log_x + change
        move = -(f + w * change) * inverse
        u = u + move
        if float(change.abs().max()) < 1e-13 and float((move.abs() / (1 + u.abs())).max()) < 1e-13:
            break
    return u


def softplus_root(value: torch.Tensor) -> torch.Tensor:
    """A first guess of Wright's omega, w + log w = value: log-like above 1, exponential below."""
    return torch.where(value > 1, value - torch.log(value.clamp(min=1)), torch.exp(value.clamp(max=1)) / 2)


def one_gpu(scale: Scale, place: Path) -> Iterator[Measured]:
    """The recipe `one-gpu` with random weights of its shape on generated problems: two steps."""
    changes = {
        "model.path": str(folder_for(scale.dense, place)),
        "env.path": str(problems_in(place)),
        "evaluation.problems": 16,
        "evaluation.every": 0,
        "evaluation.k": 1,
        "run.checkpoint_every": 2,
    }
    yield from recipe_run(scale, place, "one-gpu", changes, steps=2, prompts=16)


def problems_in(place: Path) -> Path:
    """A file of 600 generated problems: no data set is downloaded."""
    from pmdkit.envs.math import make_math

    path, found = place / "problems.jsonl", make_math({"kind": "arithmetic", "problems": 600})
    rows = [found.problem(int(number)) for number in [*found.train, *found.held_out]]
    path.write_text("".join(json.dumps({"problem": row.problem, "answer": row.answer}) + "\n" for row in rows))
    return path


def starter_100m(scale: Scale, place: Path) -> Iterator[Measured]:
    """The whole recipe `starter-100m`: phase 0, and training steps."""
    name = "starter" if scale.tiny else "starter-100m"
    changes = {"evaluation.every": 0} | ({"warm_start.pass_rate": 0.05, "env.problems": 300} if scale.tiny else {})
    yield from recipe_run(scale, place, name, changes, steps=2 if scale.tiny else 20, key="starter-100m")


def recipe_run(
    scale: Scale,
    place: Path,
    recipe: str,
    changes: Mapping[str, Any],
    steps: int,
    prompts: int | None = None,
    key: str = "",
) -> Iterator[Measured]:
    """Run `pmdkit llm`, then `pmdkit plan` on the same recipe, as from the command line."""
    changes = dict(changes)
    if importlib.util.find_spec("vllm") is None:
        changes["rollout.engine"] = "transformers"
    if scale.tiny:
        changes |= {"model.dtype": scale.dtype, "schedule.group": 4, "rollout.width": 24, "update.token_budget": 512}
        changes |= {"evaluation.problems": 8, "rollout.cache_tokens": 4096, "schedule.ministeps": 2}
        prompts = 4
    key = f"gpu/{key or recipe}"
    options = ["--set", *(f"{name}={value}" for name, value in changes.items())]
    options += [] if prompts is None else ["--prompts", str(prompts)]
    out = place / f"{recipe}-run"
    summary = pmdkit("llm", recipe, "--json", "--steps", str(steps), "--out", str(out), *options)
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    later = rows[1:]  # kernels compile in the first
    taken = [row["seconds_rollout"] + row["seconds_update"] for row in later]
    note = f"pass rate {summary['pass_rate_first']:.3f} to {summary['pass_rate_last']:.3f} in {steps} steps"
    yield Measured(f"{key}-step", taken, {"metrics": later}, note=note)
    mean = sum(row["response_length"] for row in later) / len(later)
    told = pmdkit("plan", recipe, "--gpus", f"1x{card()}", "--json", "--mean-length", f"{mean:.6g}", *options)
    note = f"predicted {told['seconds_step']:.3g} s, measured {min(taken):.3g} s; fits: {told['fits']}"
    yield Measured(f"{key}-predicted", [told["seconds_step"] / value for value in taken], note=note)


def pmdkit(*arguments: str) -> dict[str, Any]:
    """The JSON that a command prints; its errors reach the terminal."""
    command = [sys.executable, "-m", "pmdkit", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env={**os.environ, **ENVIRONMENT})
    if done.returncode:
        raise RuntimeError(f"pmdkit {' '.join(arguments[:2])} ended with code {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


PARTS: dict[str, Callable[[Scale, Path], Iterator[Measured]]] = {
    "head": head,
    "step": step,
    "rollouts": rollouts,
    "vllm": vllm,
    "solver": solver,
    "starter-100m": starter_100m,
    "one-gpu": one_gpu,
}


# The command.


def main() -> None:
    """Measure one part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, required=True, help="in this process")
    parser.add_argument("--tiny", action="store_true", help="small shapes, for a CPU; into a record aside")
    parser.add_argument("--record", type=Path, help="another file than results/gpu.json")
    chosen = parser.parse_args()
    if not CUDA and not chosen.tiny:
        sys.exit("no accelerator is seen by torch: run this where there is one (pmdkit doctor), or try it with --tiny")
    path = chosen.record or (Path(tempfile.gettempdir()) / "pmdkit-gpu-tiny.json" if chosen.tiny else GPU_RECORD)
    measure(chosen.part, TINY if chosen.tiny else Scale(), path)


def measure(name: str, scale: Scale, path: Path) -> None:
    """Measure one part; each row is stored as soon as it is measured."""
    warnings.simplefilter("ignore")
    known = {claim.key: claim for claim in claims()}
    place = Path("/dev/shm") if Path("/dev/shm").is_dir() else None  # the models take some GiB
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="pmdkit-gpu-", dir=place) as folder:
        for row in PARTS[name](scale, Path(folder)):
            assert row.key in known, f"{row.key} is no row of {CLAIMS.name}"
            keep(path, row)
            told = row.failed or f"{min(row.values):.4g} {known[row.key].unit}"
            print(f"    {row.key}: {told}{f'; {row.note}' if row.note else ''}"[:300], flush=True)
    keep(path, None, {name: round(time.monotonic() - began, 1)})


def keep(path: Path, row: Measured | None, part: Mapping[str, float] | None = None) -> None:
    """Add a row, or the seconds of a part that has ended, to the record."""
    record = records.read(path)
    entry = record["results"].setdefault("gpu", {"rounds": 0, "load": [load()], "failed": "", "rows": {}, "parts": {}})
    here = surroundings()
    if entry["rows"] and entry["environment"] != here:
        raise SystemExit(f"{path} was measured on another machine or with other versions; give --record")
    entry |= {"date": datetime.now(UTC).strftime("%Y-%m-%d"), "environment": here}
    if row is not None:
        assert benchmark_of(row.key) == "gpu"
        entry["rows"][row.key] = row.to_json()
    entry["parts"] |= part or {}
    records.write(path, record)


@cache
def surroundings() -> dict[str, Any]:
    """The machine with its accelerator, and the versions."""
    found: dict[str, Any] = machine()
    if CUDA:
        memory = torch.cuda.get_device_properties(0).total_memory / GIB
        found["processor"] = f"{torch.cuda.get_device_name()} of {memory:.0f} GiB, {found['processor']}"
    return found | {"versions": versions() | ({"CUDA": str(torch.version.cuda)} if CUDA else {})}


if __name__ == "__main__":
    main()
