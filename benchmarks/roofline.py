"""The rehearsal's predicted seconds beside those that an H200 took, and beside the planner's: nothing is fitted.

    python benchmarks/roofline.py            # all cases, each in its own process without torch so far; four CPU minutes
    python benchmarks/roofline.py dense      # one of them

The steps are those of rows gpu/mfu-dense and gpu/mfu-mixture and of results/gpu-one-gpu.json. A part of the prompts is
rehearsed; the seconds of its passes count for all tokens, those of the optimizer once for each update. In the results
`now` is what it writes; `rehearsed` is of the code that was measured, by commit 73dcda2b with --as-measured, and
`before` is of that commit.

Kept because docs/use/plan.md says how far the rehearsal's seconds are from measured ones.
"""

import ctypes
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest.mock import patch

# seconds on the H200: the best round, since slow rounds are noise of that host
MEASURED = {"dense": 5.78, "mixture": 4.39, "one-gpu": 8.6, "head": 0.119, "head-narrow": 0.0574}
STEPS = {  # shape, prompts, responses and their width, recomputing, ministeps, prompts that are rehearsed
    "dense": ("qwen2-1.5b", (16, 16, 2048), "false", 1, 2),
    "mixture": ("qwen3-moe-1.6b", (16, 16, 2048), "false", 1, 2),
    "one-gpu": ("qwen2-0.5b", (64, 16, 512), "true", 8, 2),
}
RESULTS = Path(__file__).with_name("results") / "roofline.json"  # seconds, three digits
GPU, PROMPT = "H200", 14  # tokens of a prompt


def recipe(case: str, place: Path) -> Path:
    """A recipe of that shape; its model is a configuration without weights."""
    import transformers
    from gpu import RECIPE, SHAPES

    shape, (prompts, group, width), checkpointing, _, _ = STEPS[case]
    kind, numbers = SHAPES[shape]
    ends = {"bos_token_id": None, "eos_token_id": 0, "pad_token_id": 1}
    getattr(transformers, kind)(max_position_embeddings=4096, **ends, **numbers).save_pretrained(place / shape)
    numbers = {"folder": place / shape, "dtype": "bfloat16", "engine": "transformers", "budget": 16_384}
    numbers |= {"prompts": prompts, "group": group, "width": width, "problems": 300, "checkpointing": checkpointing}
    path = place / "recipe.toml"
    path.write_text(RECIPE.format(**numbers))
    return path


def step(case: str, meter, place: Path) -> tuple[float, float]:
    """The rehearsed and the planned seconds of a step's updates."""
    import numpy as np
    import torch

    from pmdkit.llm import backend
    from pmdkit.loop import Rollouts, graded
    from pmdkit.objectives import credit
    from pmdkit.process_group import SINGLE
    from pmdkit.randomness import generator
    from pmdkit.resolve import resolve
    from pmdkit_lab.planner import cluster, predict, workload
    from pmdkit_lab.rehearsal import rank

    _, (prompts, group, width), _, ministeps, few = STEPS[case]
    spec, objective = resolve("llm", str(recipe(case, place)), {"schedule.ministeps": ministeps})
    task = rank.make_task(spec, objective, 1)
    task.encode = lambda problem: list(range(problem.number + 3, problem.number + 3 + PROMPT))
    model = rank.make_model(spec, False)
    engine = rank.make_engine(spec, model, task, SINGLE)
    policy = rank.make_policy(spec, objective, model, SINGLE)
    learner = backend.make_learner(spec, policy, task, task, engine)
    learner.optimizer.step = meter.phase("optimizer")(learner.optimizer.step)
    every = generator(0, "lengths").lognormal(np.log(width / 3), 0.7, prompts * group).clip(4, width).astype(int)
    every = np.full(prompts * group, width - 1) if case == "one-gpu" else every
    lengths = every[: few * group]
    mask = torch.arange(width) < torch.tensor(lengths)[:, None]
    tokens, logp = 7 * mask, torch.full(mask.shape, -1.0)
    mass = torch.full((few, group), 1 / group, dtype=torch.float64)
    drawn = Rollouts(torch.arange(few), tokens, logp, mask, mass, sampled=True, seed=1, version=0, width=width)
    groups = graded((torch.arange(few * group).view(few, group) % 2).double(), drawn)
    batch = credit(objective, groups, drawn.logp_old, drawn.mask, drawn.logp_ref, drawn.width)
    for _ in range(2):  # the first makes the optimizer's state
        meter.forget()
        with meter.phase("update"):
            learner.update(objective, drawn, batch)
    phases = meter.phases
    seconds = phases["update"]["seconds"] * every.sum() / lengths.sum() + ministeps * phases["optimizer"]["seconds"]
    plan = predict.Prediction(
        workload.sizes_of(spec),
        workload.work_of(spec, PROMPT),
        workload.ResponseLengths((every[:, None] > np.arange(width)).mean(0)),
        cluster.cluster(f"1x{GPU}"),
    )
    return float(seconds), predict.report(spec, plan)["seconds_update"]


def head(case: str, meter) -> tuple[float, float]:
    """The rehearsed and the planned seconds of the loss through the head."""
    import torch
    from head_ways import fused, ragged

    from pmdkit_lab.planner.cluster import PRACTICE
    from pmdkit_lab.planner.data_sheets import GPUS

    tokens, vocabulary, width = 16_384, 151_936, 896 if case == "head-narrow" else 3584
    given = [
        torch.empty(rows, width, dtype=torch.bfloat16, device="cuda").requires_grad_() for rows in (tokens, vocabulary)
    ]
    targets = torch.empty(tokens, dtype=torch.long, device="cuda")
    meter.forget()
    with meter.phase("update"):
        fused(ragged(tokens), None)(*given, targets).backward()
    gpu, logits = GPUS[GPU], tokens * vocabulary
    products = 3 * 2 * logits * width / (gpu.flops * gpu.reached * PRACTICE.training)
    planned = products + PRACTICE.logit_bytes * logits / (gpu.bandwidth * PRACTICE.bandwidth)
    return meter.phases["update"]["seconds"], planned


def rehearsed(case: str) -> None:
    """Print what one case would take, as JSON; torch is not imported before."""
    from pmdkit.llm.packed_attention import PackedLayout
    from pmdkit_lab.planner.data_sheets import GPUS
    from pmdkit_lab.rehearsal import device
    from pmdkit_lab.rehearsal.meter import Meter
    from pmdkit_lab.rehearsal.rehearse import costliest

    device.install(GPUS[GPU].gib)
    meter, attend = Meter(GPUS[GPU]), PackedLayout.attend_varlen

    def counted(layout, *given):
        pairs = zip(layout.heads, layout.lengths, strict=True)
        meter.pairs = sum(n * len(before) + n * (n + 1) // 2 for before, n in pairs)
        return attend(layout, *given)

    watched = device.watched(meter.resized)
    with tempfile.TemporaryDirectory() as place, patch.object(PackedLayout, "attend_varlen", counted), watched, meter:
        found = step(case, meter, Path(place)) if case in STEPS else head(case, meter)
        phase = meter.phases["update"]
        told = {"rehearsed": found[0], "planned": found[1], "measured": MEASURED[case]}
        told |= {"launches": sum(phase["kernels"].values()), "costliest": costliest([phase])}
        print(json.dumps(told))
    sys.stdout.flush()
    os._exit(0)  # fakes that outlive their device


def main() -> None:
    """Rehearse the cases and print a table."""
    if "--inside" in sys.argv:
        ctypes.CDLL(sys.argv[-1], ctypes.RTLD_GLOBAL)  # before torch
        rehearsed(sys.argv[1])
    from pmdkit_lab.rehearsal.rehearse import compile_device

    library = str(compile_device())
    print("| case | measured | rehearsed | of measured | planned | of it | launches |\n|---|---|---|---|---|---|---|")
    for case in sys.argv[1:] or MEASURED:
        command = [sys.executable, __file__, case, "--inside", library]
        ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        told = json.loads(ended.stdout.splitlines()[-1])
        ours, plan, taken = told["rehearsed"], told["planned"], told["measured"]
        print(
            f"| {case} | {taken:.3g} s | {ours:.3g} s | {ours / taken:.2f} | {plan:.3g} s | {plan / taken:.2f} | "
            f"{told['launches']:,} |",
            flush=True,
        )
        stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        stored.setdefault(case, {})["now"] = float(f"{ours:.3g}")
        RESULTS.write_text(json.dumps(stored, indent=1) + "\n")
        for one in told["costliest"]:
            numbers = {name: value for name, value in one.items() if name != "where"}
            print(f"  {one['where']}", {name: round(value, 5) for name, value in numbers.items()}, file=sys.stderr)


if __name__ == "__main__":
    main()
