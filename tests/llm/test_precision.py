"""bfloat16 runs: the precision of every product and attention call, in training, scoring and the engine.

As a program it is one of two processes, which FSDP2's policy casts for.
"""

import json
import os
import sys
from collections import Counter
from contextlib import nullcontext
from copy import deepcopy
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from pmdkit.llm.engines.distributed import DistributedEngine
from pmdkit.llm.engines.transformers import TransformersEngine
from pmdkit.llm.fused_kernels import norm_forward
from pmdkit.llm.logprobs import response_logp
from pmdkit.llm.model import prepare_model
from pmdkit.llm.policy import ForwardRoot
from pmdkit.llm.precision import cast_model, cast_once
from pmdkit.process_group import SINGLE
from pmdkit.randomness import derive
from pmdkit.specs.llm import UpdateTable
from pmdkit.specs.spec import ScheduleTable

from .conftest import EOS, VOCABULARY, build, learner_of, step_gradients, step_of
from .ranks import PROMPTS, STRATEGIES, run_two, tied

CASES = ("qwen2", "qwen3", "qwen3-moe")
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "_grouped_mm", "addmv", "mv")
NARROW, WIDE = torch.bfloat16, torch.float32
RESPONSES = [[4, 8, 15], [16], [23, 42, 11, 12, 13, 14, 5, 6]]


class Trace(TorchDispatchMode):
    """Notes each product and each call of attention: what it is, the precision of what goes in, and its FLOPs."""

    def __init__(self):
        super().__init__()
        self.calls: list[tuple[str, tuple[str, ...], bool, float]] = []
        self.wide: set[str] = set()  # operations with a float32 result, whatever went in

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        name = function.overloadpacket.__name__
        given = [x for x in args if isinstance(x, Tensor) and x.is_floating_point()]
        first = next((x for x in tree_leaves(out) if isinstance(x, Tensor)), None)
        if first is not None and first.dtype == WIDE:
            self.wide.add(name)
        if name in PRODUCTS or "attention" in name or "attn" in name:
            head = any(VOCABULARY in x.shape for x in (*given, first) if x is not None)
            self.calls.append((name, tuple(str(x.dtype) for x in given), head, self.work(function, name, args, out)))
        return out

    @staticmethod
    def work(function, name, args, out):
        if name == "_grouped_mm":
            return 2.0 * args[0].shape[-2] * args[0].shape[-1] * args[1].shape[-1]
        if "varlen_attn" in name:  # rows of all sequences, one after another
            q, k = args[:2] if "backward" not in name else args[1:3]
            return 4.0 * q.shape[0] * k.shape[0] * q.shape[1] * q.shape[2]
        if "attention" in name:  # neither this kernel's layout nor what its mask leaves out matters for a share
            q, k = args[:2] if "backward" not in name else args[1:3]
            return 4.0 * q.shape[1] * q.shape[2] * k.shape[2] * q.shape[3]
        operands = [x for x in args if isinstance(x, Tensor)]  # on CUDA a product is also told the dtype of its sums
        return float(flop_registry[function.overloadpacket](*operands, out_val=out))

    def kinds(self):
        """Each kind of call once, without the head's."""
        return {(name, given) for name, given, head, _ in self.calls if not head}

    def float32_share(self):
        """Of FLOPs outside the head."""
        outside = [(given, work) for _, given, head, work in self.calls if not head]
        assert sum(work for _, work in outside) > 0
        return sum(w for given, w in outside if str(WIDE) in given) / sum(w for _, w in outside)


def learner(kind, process_group=SINGLE, dtype=NARROW, checkpointing=False, build=build):
    """A learner and an engine with a copy of its weights, both in bfloat16."""
    model = prepare_model(build(kind), checkpointing=checkpointing)
    engine = TransformersEngine(cast_model(deepcopy(model).requires_grad_(False), dtype), EOS)
    return learner_of(
        model,
        engine if process_group.size == 1 else DistributedEngine(engine, process_group, EOS),
        lambda number: PROMPTS[number],
        24,
        ScheduleTable(lr=1e-2, optimizer="sgd"),
        UpdateTable(token_budget=60, clip=0.5),
        bfloat16=dtype == NARROW,
        process_group=process_group,
    )


def traced_step(kind, process_group=SINGLE, **options):
    """What the rollout, scoring and update of one step computed, each its own trace; the learner; its gradients."""
    mine = learner(kind, process_group, **options)
    gradients, found = step_gradients(mine), {}
    with Trace() as found["rollout"]:
        objective, rollouts, batch = step_of(mine, "pmd-mean")
    with torch.no_grad(), Trace() as found["scoring"]:
        mine.logp(rollouts)
    with Trace() as found["update"]:
        mine.update(objective, rollouts, batch)
    return found, mine, gradients


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`gradient_checkpointing_enable` is deprecated:FutureWarning")
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("kind", CASES)
def test_products_and_attention_are_in_bfloat16(kind, checkpointing):
    """All of a step outside the head; what must be float32 still is: norms, softmax, weights and their gradients."""
    found, mine, gradients = traced_step(kind, checkpointing=checkpointing)
    for phase, trace in found.items():
        assert any("attention" in name for name, _ in trace.kinds()), phase
        assert ("_grouped_mm" in {name for name, _ in trace.kinds()}) == (kind == "qwen3-moe")
        assert trace.float32_share() < 0.1, (phase, trace.kinds())
        assert {given for name, given in trace.kinds() if "attention" in name and "backward" not in name} <= {
            (str(NARROW),) * 3,
            (str(NARROW),) * 4,
        }, phase
        # the variance of a norm; log-probabilities come from logits in float32
        assert {"mean", "rsqrt"} <= trace.wide, phase
        assert trace.wide & {"exp", "exp_"}, phase
        assert all(str(WIDE) in given for _, given, head, _ in trace.calls if head), phase
    if kind == "qwen3-moe":
        assert "_softmax" in found["update"].wide  # the router's
    assert {weight.dtype for weight in mine.model.parameters()} == {WIDE}
    assert gradients.keys() == {name for name, _ in mine.model.named_parameters()}
    assert {gradient.dtype for gradient in gradients.values()} == {WIDE}
    assert all(weight.grad is None for weight in mine.model.parameters())  # freed for the engine


@pytest.mark.filterwarnings("ignore:`gradient_checkpointing_enable` is deprecated:FutureWarning")
@pytest.mark.parametrize("kind", ["qwen2", "qwen3-moe"])
def test_gradients_are_those_of_bfloat16_weights(kind):
    """Loss and gradients of a model that is bfloat16 all through, whether activations or copies are kept or not."""
    prompts = PROMPTS[:3]
    ends = []
    for how in ("stock", "cast", "recomputed"):
        model = prepare_model(build(kind), checkpointing=how == "recomputed")
        root = ForwardRoot(cast_model(model, NARROW)) if how == "stock" else ForwardRoot(model, NARROW)
        logp = root(lambda model: response_logp(model, prompts, RESPONSES))
        (logp * torch.linspace(-1, 1, len(logp))).sum().backward()
        ends.append((logp.detach(), {name: weight.grad for name, weight in model.named_parameters()}))
    (logp, stock), *ours = ends
    for mine, gradients in ours:
        assert torch.equal(mine, logp)
        for name, gradient in gradients.items():
            assert gradient.dtype == WIDE
            if "lm_head" in name:  # here rounded to bfloat16 once more
                torch.testing.assert_close(gradient, stock[name].float(), rtol=2**-8, atol=1e-6)
            else:
                assert torch.equal(gradient, stock[name].float()), name


def test_a_tied_head_adds_its_gradient_in_float32():
    mine = learner("qwen2", build=tied)
    objective, rollouts, batch = step_of(mine, "pmd-mean")
    gradients = step_gradients(mine)
    mine.update(objective, rollouts, batch)
    gradient = gradients["model.embed_tokens.weight"]
    assert gradient.dtype == WIDE
    assert not torch.equal(gradient, gradient.to(NARROW).float())


@pytest.mark.slow
@pytest.mark.parametrize("kind", CASES)
def test_engine_and_trainer_agree_to_the_rounding_of_attention(kind):
    """Both compute the same in bfloat16, so they differ less than either does from float32."""
    mine, wide = learner(kind), learner(kind, dtype=WIDE)
    rollouts = mine.rollout(torch.arange(3), 4, derive(0, "rollout"))
    with torch.no_grad():
        ours, exact = mine.logp(rollouts)[rollouts.mask], wide.logp(rollouts)[rollouts.mask]
    engine = rollouts.logp_old[rollouts.mask].double()
    apart = (engine - ours).abs().mean()
    assert apart < 0.7 * (engine - exact).abs().mean()


@pytest.mark.nightly  # two processes that import transformers
def test_two_processes_compute_what_one_does(tmp_path):
    """The same kinds of products in the same precision, and FSDP2's gradients are those of whole cast weights."""
    run_two("tests.llm.test_precision", tmp_path, seconds=150)
    for kind in ("qwen2", "qwen3-moe"):
        found, *_ = traced_step(kind)
        for phase, trace in found.items():
            for strategy in STRATEGIES:
                said = [json.loads((tmp_path / f"{strategy} {kind} {rank}.json").read_text()) for rank in range(2)]
                assert {(name, tuple(given)) for one in said for name, given in one[phase]} == trace.kinds(), phase
        ddp, fsdp2 = (load_file(tmp_path / f"{strategy} {kind} 0.safetensors") for strategy in STRATEGIES)
        for name, gradient in ddp.items():
            # FSDP2 gets the head's gradient in bfloat16
            rounding = 2**-8 if name in ("lm_head.weight", "model.embed_tokens.weight") else 1e-5
            torch.testing.assert_close(fsdp2[name], gradient, rtol=rounding, atol=rounding * float(gradient.norm()))


def main(out: Path) -> None:
    """A traced step as one of two processes, first with weights that it casts itself."""
    from pmdkit.llm.accelerate_group import AccelerateGroup
    from pmdkit.llm.weights import full_tensor

    torch.set_num_threads(1)
    for strategy in STRATEGIES:
        process_group = AccelerateGroup(strategy, timeout=60, cpu=True)
        for kind in ("qwen2", "qwen3-moe"):
            found, mine, gradients = traced_step(kind, process_group)
            assert {x.dtype for x in (*mine.model.parameters(), *gradients.values())} == {WIDE}
            kinds = {phase: sorted(trace.kinds()) for phase, trace in found.items()}
            (out / f"{strategy} {kind} {process_group.rank}.json").write_text(json.dumps(kinds))
            whole = {name: full_tensor(gradient).contiguous() for name, gradient in gradients.items()}
            save_file(whole, out / f"{strategy} {kind} {process_group.rank}.safetensors")
    process_group.accelerator.end_training()


class Casts(TorchDispatchMode):
    """Counts how often each weight is cast, by its address."""

    def __init__(self):
        super().__init__()
        self.of = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten._to_copy.default:
            self.of[args[0].data_ptr()] += 1
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("kind", CASES)
def test_weights_are_cast_once_for_all_passes_of_an_update(kind, checkpointing):
    """With the gradients of passes that cast for themselves, to the bit; a pass without gradient has its own casts."""
    found = []
    for scope in (cast_once, nullcontext):
        model = prepare_model(build(kind), checkpointing=checkpointing)
        root = ForwardRoot(model, NARROW)
        with Casts() as casts, scope(root):
            with torch.no_grad():
                root(lambda model: response_logp(model, PROMPTS[:1], RESPONSES[:1]))
            casts.of.clear()
            for response in (RESPONSES[0], RESPONSES[2]):
                root(lambda model, one=response: response_logp(model, PROMPTS[:1], [one])).sum().backward()
        head = model.get_output_embeddings().weight
        times = {casts.of[weight.data_ptr()] for weight in model.parameters() if weight is not head}
        found.append(({name: weight.grad for name, weight in model.named_parameters()}, times))
    assert found[0][1] == {1}
    assert min(found[1][1]) >= 2
    assert all(torch.equal(gradient, found[1][0][name]) for name, gradient in found[0][0].items())


@pytest.mark.parametrize("dtype", [WIDE, NARROW])
@pytest.mark.parametrize("kind", CASES)
def test_every_norm_is_torch_s_kernel_on_a_gpu_with_the_same_casts(kind, dtype):
    """What it would compute there, on a CPU to the bit that of the model's own class."""
    model = build(kind)
    prepare_model(model)
    norms = [module for module in model.modules() if hasattr(module, "variance_epsilon")]
    assert norms
    assert all(type(module).forward is norm_forward for module in norms)
    norm = norms[-1].to(dtype)
    x = torch.randn(50, len(norm.weight), generator=torch.Generator().manual_seed(0)).to(dtype)
    assert torch.equal(norm(x), norm.weight * F.rms_norm(x, x.shape[-1:], eps=norm.variance_epsilon))


@pytest.mark.gpu
@pytest.mark.parametrize("kind", CASES)
def test_products_and_attention_are_in_bfloat16_on_a_gpu(kind):
    """One accelerator: no product in float32 outside the head, and the variable-length kernel in every layer."""
    model = prepare_model(build(kind), "cuda")
    root = ForwardRoot(model, NARROW)
    with Trace() as trace:
        root(lambda model: response_logp(model, PROMPTS[:3], RESPONSES)).sum().backward()
    assert trace.float32_share() < 0.1, trace.kinds()
    attention = [name for name, _, _, _ in trace.calls if "attn" in name and "backward" not in name]
    assert attention == ["_varlen_attn"] * model.config.num_hidden_layers


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    main(Path(sys.argv[1]))
