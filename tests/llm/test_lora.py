"""Adapters: what is trained and what stays, the same numbers as peft's own model, and runs that resume to the bit."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from pmdkit.errors import ResumeRefused
from pmdkit.llm import lora
from pmdkit.llm.engines.transformers import TransformersEngine
from pmdkit.llm.logprobs import response_logp
from pmdkit.llm.packing import check_packing, use_packing
from pmdkit.objectives import total
from pmdkit.specs.llm import LoraTable, UpdateTable
from pmdkit.specs.spec import ScheduleTable

from .conftest import EOS, build, learner_of, step_gradients, step_of
from .test_learner import PROMPTS
from .test_learner import stock_logp as logp_of_rows

RESPONSES = [[4, 8, 2], [9, 1, 1, 6], [3]]
EXPERTS = ["q_proj", "o_proj", "experts.gate_up_proj", "experts.down_proj"]
CASES = {
    "qwen2": LoraTable(rank=2),
    "llama": LoraTable(rank=3, alpha=6.0, targets=["q_proj", "mlp.down_proj"]),
    "qwen3-moe": LoraTable(rank=2),
    "experts": LoraTable(rank=2, targets=EXPERTS),
}
OF_PEFT = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")  # peft asks by an old name


def model_of(case):
    """The model of a case, without adapters."""
    return build("qwen3-moe" if case == "experts" else case)


def learner(case, copied=False, reference=False, **more):
    """A learner with adapters, whose engine runs the same model, or a copy made before it had them."""
    model = model_of(case)
    use_packing(model)
    engine = TransformersEngine(deepcopy(model) if copied else model, EOS)
    lora.inject_adapters(model, CASES[case], seed=3)
    schedule = ScheduleTable(lr=0.3, optimizer="sgd")
    options = UpdateTable(token_budget=40, clip=1e9)
    return learner_of(model, engine, lambda n: PROMPTS[n], 6, schedule, options, reference=reference, **more)


def moved(case, **more):
    """A learner after two updates."""
    mine = learner(case, **more)
    for seed in range(2):
        mine.update(*step_of(mine, "pmd-mean", seed=seed))
    return mine


def stock_logp(model):
    """Log-probabilities of the three responses by the model's own forward pass."""
    model.set_attn_implementation("eager")
    rows = []
    for prompt, response in zip(PROMPTS, RESPONSES, strict=True):
        policy = model(torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        rows.append(policy[torch.arange(len(response)), response])
    return torch.cat(rows)


@pytest.mark.parametrize("case", CASES)
def test_at_first_it_is_the_base_policy(case):
    """B = 0: the same bits, in the model's own class."""
    base, model = model_of(case), model_of(case)
    given = lora.inject_adapters(model, CASES[case], seed=3)
    assert given is model
    assert type(model) is type(base)
    for each in (base, model):
        use_packing(each)
    with torch.no_grad():
        a, b = (response_logp(each, PROMPTS, RESPONSES) for each in (base, model))
    assert torch.equal(a, b)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.slow
def test_adapters_are_trained_and_nothing_else(case):
    mine = moved(case)
    gradients = step_gradients(mine)
    mine.update(*step_of(mine, "pmd-mean", seed=1))
    base = model_of(case).state_dict()
    trained = {id(weight) for group in mine.optimizer.param_groups for weight in group["params"]}
    for name, weight in mine.model.named_parameters():
        assert (id(weight) in trained) == weight.requires_grad == (".lora_" in name)
        assert (name in gradients) == weight.requires_grad
        if ".lora_" in name:
            assert weight.abs().max() > 0
        else:
            assert torch.equal(weight, base[lora.stock_name(name)])
    made = mine.state_dict()["model"]
    assert made.keys() == {name for name in base if name in made} | (base.keys() - {"lm_head.weight"})
    changed = {name for name, weight in made.items() if not torch.equal(weight, base[name])}
    linear, fused = lora.target_modules(model_of(case), CASES[case].targets)
    assert changed == {f"{name}.weight" for name in linear} | set(fused)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_packed_sampled_merged_and_stock_are_one_policy(case):
    """The adapted model packed, its engine's draws, a stock model of merged weights: the same log-probabilities."""
    mine = moved(case)
    check_packing(mine.model)
    with torch.no_grad():
        packed = response_logp(mine.model, PROMPTS, RESPONSES)
        stock = model_of(case)
        before = stock_logp(stock)
        stock.load_state_dict(mine.state_dict()["model"], strict=False)
        torch.testing.assert_close(stock_logp(stock), packed, atol=1e-5, rtol=1e-5)
        assert (before - packed).abs().max() > 1e-2
        rollouts = mine.rollout(torch.arange(3), 4, seed=9)
        logp = mine.logp(rollouts)
    torch.testing.assert_close(torch.where(rollouts.mask, logp, 0.0), rollouts.logp_old.double(), atol=1e-5, rtol=0)


@pytest.mark.slow
@OF_PEFT
@pytest.mark.parametrize("case", ["qwen2", "experts"])
@pytest.mark.parametrize("name", ["pmd-mean", "grpo"])
def test_the_update_is_that_of_peft(name, case):
    """`PeftModel`, stock forward passes of single responses and plain SGD take the same step."""
    mine = moved(case)
    base = model_of(case)
    linear, fused = lora.target_modules(base, CASES[case].targets)
    config = LoraConfig(r=2, lora_alpha=32, target_modules=linear, target_parameters=fused or None)
    theirs = get_peft_model(base, config)
    weights = {name.removeprefix("base_model.model."): x for name, x in theirs.named_parameters() if x.requires_grad}
    own = {name: x for name, x in mine.model.named_parameters() if x.requires_grad}
    assert weights.keys() == own.keys()
    with torch.no_grad():
        for label, weight in weights.items():
            weight.copy_(own[label])
    before = {label: weight.detach().clone() for label, weight in own.items()}
    objective, rollouts, batch = step_of(mine, name, seed=5)
    loss = total(objective, replace(batch, logp=logp_of_rows(theirs, rollouts).double()))
    loss.backward()
    report = mine.update(objective, rollouts, batch)
    assert report["loss"] == pytest.approx(loss.item(), abs=1e-5)
    largest = max(float(weight.grad.abs().max()) for weight in weights.values())
    assert largest > 1e-3
    for label, weight in weights.items():
        step = (before[label] - own[label].detach()) / 0.3
        torch.testing.assert_close(step, weight.grad, atol=1e-4 * largest, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["qwen2", "experts"])
def test_the_reference_policy_is_the_base(case):
    """No second copy; switched on again, adapters go on learning."""
    mine = moved(case, reference=True)
    assert mine.policy.reference is None
    assert "reference" not in mine.state_dict()
    objective, rollouts, batch = step_of(mine, "tb", seed=5)
    base = model_of(case)
    use_packing(base)
    with torch.no_grad():
        asked, answers, _ = mine.rows(rollouts)
        wanted = response_logp(base, asked, answers).double()
        policy = mine.logp(rollouts)
    torch.testing.assert_close(rollouts.logp_ref[rollouts.mask], wanted, atol=1e-5, rtol=1e-5)
    assert (policy - rollouts.logp_ref).abs().max() > 1e-2
    before = mine.state_dict()["model"]
    assert mine.update(objective, rollouts, batch)["grad_norm"] > 0
    assert any(not torch.equal(x, before[name]) for name, x in mine.state_dict()["model"].items())


def test_a_checkpoint_goes_with_its_rank():
    state = deepcopy(moved("qwen2").state_dict())
    state["adapter"] = {name: x[:1] if "lora_A" in name else x for name, x in state["adapter"].items()}
    with pytest.raises(ResumeRefused, match="lora_A"):
        learner("qwen2").load_state_dict(state)
    del state["adapter"]
    with pytest.raises(ResumeRefused, match="absent"):
        learner("qwen2").load_state_dict(state)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["qwen2", "qwen3-moe", "experts"])
def test_what_is_saved_loads_in_transformers(case, tmp_path):
    mine = moved(case)
    with torch.no_grad():
        wanted = response_logp(mine.model, PROMPTS, RESPONSES)
        mine.model.save_pretrained(tmp_path, state_dict=mine.state_dict()["model"])
        merged = stock_logp(AutoModelForCausalLM.from_pretrained(tmp_path))
    torch.testing.assert_close(merged, wanted, atol=1e-5, rtol=1e-5)
