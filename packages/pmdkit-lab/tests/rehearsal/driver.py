"""Rehearses all cases of the tests in one process, and those with a mistake planted; one JSON value on stdout.

With --mistakes, those of `mistakes.py`: how each ends ("caught", "deviates" or "silent"), and the sentences. With
--numbers, without the device: those that no fake tensor shows, in a tiny model with real ones.
"""

import ctypes
import inspect
import json
import os
import socket
import sys
import textwrap
from contextlib import contextmanager, nullcontext
from importlib import import_module
from pathlib import Path

LAYERS = 2
SMALL = {"schedule.prompts": 2, "schedule.group": 2, "schedule.ministeps": 1}  # float32 attends one by one
SEVEN, MOE, ONE = "qwen2.5-7b", "qwen3-30b-a3b", "one-gpu"
BRIEF = {"update.token_budget": 2560, "rollout.width": 1024, "rollout.max_prompt": 512}  # fewer chunks of the head
CASES = {  # recipe, rank, changes
    "7b last": (SEVEN, 31, {}),
    "7b first": (SEVEN, 0, BRIEF),
    "7b token-level, kept activations": (SEVEN, 16, {**BRIEF, "objective.name": "grpo", "model.checkpointing": False}),
    "7b reference": (SEVEN, 5, {**BRIEF, "objective.kl_coef": 0.01}),
    "7b groups": (SEVEN, 0, {**BRIEF, "objective.name": "rebel", "schedule.group": 2}),
    "7b four replicas": (SEVEN, 31, {**BRIEF, "parallel.replicas": 4}),
    "7b eight replicas": (SEVEN, 63, {**BRIEF, "parallel.processes": 64, "parallel.replicas": 8}),
    "7b adapters": (SEVEN, 31, {**BRIEF, "lora.rank": 8}),
    "30b last": (MOE, 63, {**BRIEF, "rollout.lag": 1, "rollout.old": "rollout"}),
    "one token-level adapters": (ONE, 0, {**BRIEF, "objective.name": "grpo", "lora.rank": 8}),
    "one reference": (ONE, 0, {**BRIEF, "objective.kl_coef": 0.01, "model.checkpointing": False}),
    "one ddp": (ONE, 7, {**BRIEF, "parallel.processes": 8}),
    "100m": ("starter-100m", 0, {**SMALL, "rollout.engine": "transformers"}),
    "moe": ("starter-moe", 0, SMALL),
    "starter": ("starter", 0, {**SMALL, "parallel.processes": 2, "parallel.strategy": "fsdp2"}),
    "smollm2": ("smollm2", 0, SMALL),
    "calculator": ("calculator", 0, SMALL),
    "own": ("own", 0, {**SMALL, "model.path": "Qwen/Qwen2.5-0.5B", "env.path": "problems.jsonl"}),
}


@contextmanager
def planted(file, name, right, wrong):
    """A function of pmdkit.llm with a mistake in it, on its own line of its own file."""
    module = import_module(f"pmdkit.llm.{file}")
    *owners, last = name.split(".")
    owner = getattr(module, owners[0]) if owners else module
    function = getattr(owner, last)
    lines, first = inspect.getsourcelines(function)
    source = textwrap.dedent("".join(lines))
    assert source.count(right) == 1, (name, right)
    made = {}  # the function's globals are those of its module, which a rehearsal patches
    exec(compile("\n" * (first - 1) + source.replace(right, wrong), module.__file__, "exec"), vars(module), made)
    setattr(owner, last, made[last])
    try:
        yield
    finally:
        setattr(owner, last, function)


def rehearsed(library):
    """The rehearsal of one process of a recipe, whose models have few layers; in a process without torch so far."""
    ctypes.CDLL(library, ctypes.RTLD_GLOBAL)  # before torch
    from pmdkit_lab.planner import model_shapes
    from pmdkit_lab.rehearsal import device, rank

    device.install(80)
    whole = model_shapes.shape_of

    def few_layers(spec):
        shape = whole(spec)
        config = shape.config() if isinstance(shape, model_shapes.ModelShape) else shape
        config.num_hidden_layers = layers = LAYERS if spec.model.dtype == "bfloat16" else 1  # float32: one by one, slow
        if getattr(config, "layer_types", None):
            config.layer_types = config.layer_types[:layers]
        return config

    model_shapes.shape_of = few_layers

    def found(recipe, number, changes, **other):
        given = {"recipe": recipe, "changes": changes, "trust": [], "rank": number, "gpu": "H100"}
        return rank.rehearse_rank(given | other)

    return found


def every_mistake(found, table, names):
    """How each of a table ends: ranks 0 and 31, compared with a rehearsal without a mistake and with each other."""
    import torch

    from pmdkit_lab.rehearsal import accepted

    def both():
        return [found(SEVEN, rank, BRIEF) for rank in (0, 31)]

    before, told = accepted.record_of(both()), {}
    for name, mistake in table.items():
        if names and name not in names:
            continue
        with planted(*mistake):
            ranks = both()
        vars(torch).pop("kept", None)  # where one of them puts what it keeps
        caught = [f"{one['problem']} ({one['where']})" for one in ranks if "problem" in one]
        caught += [one["problem"] for one in accepted.unlike_calls(ranks)]
        words = accepted.deviations(ranks, before)
        told[name] = ["caught", caught] if caught else ["deviates", words] if words else ["silent", []]
        print(name, told[name][0], *told[name][1][:4], sep="\n    ", file=sys.stderr, flush=True)
    return told


def twin(table, names):
    """What differs between one process of FSDP2 and none in a tiny step: without a mistake, and with each."""
    import torch

    from pmdkit.llm.accelerate_group import AccelerateGroup
    from pmdkit.process_group import SINGLE
    from tests.llm.ranks import one_case

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    os.environ |= {"WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    right, group = one_case(SINGLE, "fused"), AccelerateGroup("fsdp2", timeout=60, cpu=True)
    told = {}
    for name in ("", *names):
        with planted(*table[name]) if name else nullcontext():
            try:
                found = one_case(group, "fused")
                told[name] = [key for key, value in right.items() if not torch.allclose(found[key], value, 1e-5, 1e-5)]
            except KeyError as wrong:  # a weight under another's name
                told[name] = [str(wrong)]
    return told


def main():
    here = Path(__file__)
    sys.path += [str(here.parent), str(here.parents[4])]  # a program has no package
    from mistakes import CORRECT, MISTAKES, NUMBERS, REFUSED

    if "--numbers" in sys.argv:
        print(json.dumps(twin(MISTAKES, NUMBERS)))
        return
    found = rehearsed(sys.argv[1])
    if "--mistakes" in sys.argv:
        print(json.dumps(every_mistake(found, MISTAKES | CORRECT, sys.argv[3:])))
        sys.stdout.flush()
        os._exit(0)

    def like(processes):
        """The process in the middle, which need not be rehearsed where its shards are like those of the last."""
        return found(SEVEN, processes // 2, {**BRIEF, "parallel.processes": processes}, like=processes - 1)

    every = {name: found(*case) for name, case in CASES.items() if not sys.argv[2:] or name in sys.argv[2:]}
    for name in REFUSED:
        if not sys.argv[2:] or name in sys.argv[2:]:
            with planted(*MISTAKES[name]):
                every[name] = found(*CASES["7b first"])
    every |= {f"like {size}": like(size) for size in (32, 20) if not sys.argv[2:] or f"like {size}" in sys.argv[2:]}
    print(json.dumps(every))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
