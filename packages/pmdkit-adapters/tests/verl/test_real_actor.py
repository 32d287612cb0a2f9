"""verl's own FSDP engine updates a tiny Qwen2 on CPUs: the gradient of every weight is that of pmdkit's total.

Two gloo ranks, dynamic micro-batches by token budget, verl's `ppo_loss`. Not here: Megatron, padding-free inputs
(they need flash-attn), Ray.
"""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen2Config, Qwen2ForCausalLM

from pmdkit.objectives import Groups, PMDMean, PMDPart, credit, total

P, G, PROMPT, LONGEST = 3, 4, 3, 9
HERE = Path(__file__).parent
LOSS = "actor_rollout_ref.actor.policy_loss."
BASE = ["actor_rollout_ref.rollout.n=4", "actor_rollout_ref.actor.use_dynamic_bsz=true"]


def tiny_model(folder):
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=False, attn_implementation="eager",
    )  # fmt: skip
    model = Qwen2ForCausalLM(config)
    model.save_pretrained(folder)
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({str(i): i for i in range(32)}, unk_token="0"))
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="1", pad_token="0", unk_token="0").save_pretrained(folder)
    return model


def scored(model, ids, lengths):
    """[N, T] log-probabilities of the responses by transformers alone, a row at a time: no padding."""
    rows = []
    for row, length in zip(ids, lengths.tolist(), strict=True):
        sequence = row[: PROMPT + length]
        logits = model(sequence[None]).logits[0, PROMPT - 1 : -1].log_softmax(-1)
        logp = logits.gather(1, sequence[PROMPT:, None])[:, 0]
        rows.append(torch.nn.functional.pad(logp, (0, LONGEST - length)))
    return torch.stack(rows)


CASES = {
    "pmd-mean": (PMDMean(tau=0.05), ["+pmd=mean", f"{LOSS}pmd_tau=0.05"]),
    "pmd-part": (
        PMDPart(tau=0.5, scale="paper"),
        ["+pmd=part", f"{LOSS}pmd_tau=0.5", f"+{LOSS}pmd_options.scale=paper"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_gradient_of_the_real_actor(tmp_path, name):
    objective, overrides = CASES[name]
    model = tiny_model(tmp_path / "model")
    draw = torch.Generator().manual_seed(1)
    lengths = torch.randint(1, LONGEST + 1, (P * G,), generator=draw)
    ids = torch.randint(2, 32, (P * G, PROMPT + LONGEST), generator=draw)
    mask = torch.arange(LONGEST) < lengths[:, None]
    mask[:, 0] &= lengths == 1  # a first token that does not count, as what a tool wrote
    reward = torch.tensor([[1.0, -1, -1, -1], [1, 1, -1, 1], [1, 1, 1, 1]])
    logp = scored(model, ids, lengths)
    old = logp.detach() + 0.2 * torch.randn(logp.shape, generator=draw)

    batch = credit(objective, Groups(reward, torch.full_like(reward, 1 / G)), old, mask)
    wanted = total(objective, replace(batch, logp=logp))
    wanted.backward()

    rows = {"input_ids": ids, "lengths": lengths, "prompt": torch.tensor(PROMPT), "response_mask": mask.long()}
    rows["old_log_probs"] = old
    rows["advantages"] = torch.where(mask, batch.advantage[:, None].float(), 0.0)
    save_file(rows, tmp_path / "rows.safetensors")
    asked = {"overrides": [*BASE, *overrides], "tokens": 24}
    (tmp_path / "asked.json").write_text(json.dumps(asked))

    command = [sys.executable, "-W", "ignore", str(HERE / "actor_worker.py"), str(tmp_path)]
    ranks = [subprocess.Popen([*command, str(rank), "2"]) for rank in range(2)]
    try:
        assert [rank.wait(timeout=600) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()

    found = json.loads((tmp_path / "found.json").read_text())
    assert found["micro_batches"] > 1
    assert found["loss"] == pytest.approx(wanted.item(), rel=1e-5)
    gradients = load_file(tmp_path / "gradients.safetensors")
    largest = max(parameter.grad.abs().max() for parameter in model.parameters())
    for name, parameter in model.named_parameters():  # float32 through two layers: 1e-5 of the largest entry
        torch.testing.assert_close(gradients[name], parameter.grad, atol=1e-5 * float(largest), rtol=0, msg=name)
