"""One rank of verl's real FSDP actor on a CPU: a file of rows in, one update by verl's engine, gradients out.

python actor_worker.py FOLDER RANK WORLD
"""

import datetime
import json
import os
import sys
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from tensordict import TensorDict


def main(folder, rank, world):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world, timeout=datetime.timedelta(seconds=60)
    )
    from cpu_platform import use_cpu

    use_cpu()
    from verl.trainer.config import CheckpointConfig
    from verl.utils import tensordict_utils as tu
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.config import FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead
    from verl.workers.utils.losses import ppo_loss

    from pmdkit_adapters.verl.check import composed

    asked = json.loads((folder / "asked.json").read_text())
    engine = FSDPEngineWithLMHead(
        HFModelConfig(
            path=str(folder / "model"),
            use_remove_padding=False,
            enable_gradient_checkpointing=False,
            override_config={"attn_implementation": "eager"},
        ),
        FSDPEngineConfig(
            strategy="fsdp2",
            model_dtype="fp32",
            dtype="float32",
            use_torch_compile=False,
            mixed_precision={"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"},
        ),
        FSDPOptimizerConfig(lr=1e-3, clip_grad=1e9),
        CheckpointConfig(),
    )
    engine.initialize()

    rows = load_file(folder / "rows.safetensors")
    mine = torch.arange(len(rows["lengths"])).tensor_split(world)[rank].tolist()

    def nested(name, start=0):
        return torch.nested.as_nested_tensor(
            [rows[name][row, start : start + int(length)] for row, length in pairs], layout=torch.jagged
        )

    prompt = int(rows["prompt"])
    pairs = [(row, rows["lengths"][row]) for row in mine]
    fields = {name: nested(name) for name in ("response_mask", "old_log_probs", "advantages")}
    fields["loss_mask"] = fields["response_mask"]
    fields["responses"] = nested("input_ids", prompt)
    pairs = [(row, prompt) for row in mine]
    fields["prompts"] = nested("input_ids")
    pairs = [(row, prompt + rows["lengths"][row]) for row in mine]
    fields["input_ids"] = nested("input_ids")
    fields["position_ids"] = torch.nested.as_nested_tensor(
        [torch.arange(prompt + int(rows["lengths"][row])) for row in mine], layout=torch.jagged
    )
    data = TensorDict(fields, batch_size=len(mine))
    tu.assign_non_tensor(
        data, global_batch_size=len(rows["lengths"]), temperature=1.0, use_remove_padding=False,
        calculate_entropy=False, use_fused_kernels=False, use_dynamic_bsz=True, max_token_len_per_gpu=asked["tokens"],
    )  # fmt: skip
    config = omega_conf_to_dataclass(composed(asked["overrides"]).actor_rollout_ref.actor)
    gradients = {}
    with engine.train_mode():  # on leaving it, verl drops the gradients
        output = engine.train_batch(data, loss_function=partial(ppo_loss, config=config))
        for name, parameter in engine.module.named_parameters():
            gradients[name] = parameter.grad.full_tensor().clone()
    losses = torch.tensor(sum(output["loss"]))
    dist.all_reduce(losses)
    if rank == 0:
        save_file(gradients, folder / "gradients.safetensors")
        found = {"loss": losses.item() / world, "micro_batches": len(output["loss"])}
        (folder / "found.json").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
