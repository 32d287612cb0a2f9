"""Checks before a run, while no model is loaded: fill in defaults, refuse what cannot work or is not installed."""

import os
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from pmdkit.envs.math import MATH_KINDS, check_math, readers
from pmdkit.envs.math.readers import MathFile
from pmdkit.envs.reward_functions import identify
from pmdkit.errors import EnvironmentLacks, UsageError, unknown
from pmdkit.extras import need, remedy
from pmdkit.llm import companions
from pmdkit.llm.engines import engine_options, engine_traits
from pmdkit.llm.model import parse_device
from pmdkit.objectives import Objective, traits
from pmdkit.plugins import is_path
from pmdkit.process_group import launched_ranks
from pmdkit.specs import LLMSpec
from pmdkit.specs.llm import SHIPPED_REWARDS, RewardTable

EVALUATED = ("held-out", "aime24", "aime25")
PROMPTS = 64  # per step, if the recipe does not say
HELD_OUT = 32  # of a file that takes the place of generated problems, as in the recipe `own`
NEEDS = {"transformers": "transformers", "tokenizers": "tokenizers", "strict_answers": "strict-answers"}
LAG_EXCLUDES = {"old": "rollout", "correction": "none", "environment": None, "max_num_gen_batches": 1}
"Options of [rollout] that must keep these values if there is a lag."


def resolve_config(spec: LLMSpec, objective: Objective) -> LLMSpec:
    """The spec with its defaults filled in; raises UsageError for values and combinations that cannot work."""
    if spec.model.backend != companions.HERE:
        spec = companions.find_backend(spec.model.backend).resolve(spec)
    elif (url := spec.remote.url) is not None:
        raise UsageError(
            f"--url is {url} and model.backend is '{companions.HERE}'; name the server's backend with --backend"
        )
    schedule, model, rollout, vllm = spec.schedule, spec.model, spec.rollout, spec.vllm
    prompts = schedule.prompts or PROMPTS
    schedule.check_batch(prompts, traits(objective).needs_peers)
    if schedule.update not in ("auto", "gradient"):
        raise UsageError(f"schedule.update is '{schedule.update}'; a language model is fitted by 'gradient' only")
    if schedule.group is None:
        raise UsageError("schedule.group is not set; a language model draws its responses: give --group, such as 16")
    env = with_own_data(spec.env)
    check_math(env)
    check_model(spec)
    check_rewards(spec.reward, rollout.width)
    if rollout.environment is not None:
        companions.find_turns().check(spec)
    for key, usual in LAG_EXCLUDES.items() if rollout.lag else ():
        if (value := getattr(rollout, key)) != usual:
            raise UsageError(
                f"rollout.{key} is {value!r} with a lag of {rollout.lag}: the trainer's weights have moved on before a "
                f"response arrives; expected {usual!r}, or lag 0"
            )
    if traits(objective).level == "response":  # the log-ratio of half a response is another objective
        for key, wanted in (("correction", "sequence-truncate or sequence-mask"), ("too_old", "drop")):
            if (value := getattr(rollout, key)).startswith(("token", "mask")):
                name = spec.objective["name"]
                raise UsageError(f"rollout.{key} is '{value}' and {name} has one loss per response; expected {wanted}")
    engine_options(spec)
    check_in_flight(spec)
    if vllm.urls and rollout.engine != "vllm-server":
        raise UsageError(f"vllm.urls is set and rollout.engine is '{rollout.engine}'; expected 'vllm-server'")
    check_evaluated("evaluation.data", spec.evaluation.data)
    parallel, here = spec.parallel, launched_ranks()
    if max(here, parallel.processes) > 1 and ":" in model.device:
        raise UsageError(
            f"model.device is '{model.device}' for several processes; expected auto or cpu: each has its own"
        )
    if here > 1:  # `accelerate launch` or torchrun has started them
        sharded = os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true"
        strategy = "fsdp2" if sharded else parallel.strategy
        parallel = parallel.model_copy(update={"processes": here, "strategy": strategy})
    if schedule.optimizer == "muon" and parallel.strategy == "fsdp2":
        raise UsageError("schedule.optimizer is 'muon' with fsdp2, which keeps no whole matrix; use ddp, or adamw")
    if parallel.replicas > 1 and (parallel.strategy != "fsdp2" or parallel.processes % parallel.replicas):
        raise UsageError(
            f"parallel.replicas is {parallel.replicas} with {parallel.strategy} and {parallel.processes} processes; "
            "expected fsdp2, and a divisor of the processes"
        )
    return spec.model_copy(
        update={
            "env": env,
            "schedule": schedule.model_copy(update={"update": "gradient", "prompts": prompts}),
            # an engine that sleeps during updates cannot generate during them
            "vllm": vllm.model_copy(update={"sleep": False}) if rollout.lag else vllm,
            "parallel": parallel,
            "evaluation": spec.evaluation.model_copy(
                update={"temperature": spec.evaluation.temperature or rollout.temperature}
            ),
        }
    )


def check_in_flight(spec: LLMSpec) -> None:
    """Refuse weights in flight where no engine can take them, and options that mean nothing without them."""
    rollout, wrong = spec.rollout, ""
    if not rollout.in_flight:
        for key in ("max_age", "repeat_changes", "too_old"):
            if (value := getattr(rollout, key)) not in (None, "drop"):
                raise UsageError(f"rollout.{key} is {value!r} without rollout.in_flight; set that to true")
    elif not rollout.lag:
        wrong = "rollout.lag is 0: no response is written during an update; expected a lag of at least 1"
    elif not engine_traits(spec).in_flight:
        wrong = (
            f"the engine '{rollout.engine}' does not take weights between two tokens, with a version for each; "
            "expected 'transformers', 'vllm' with vllm.tensor_parallel = 1, or your own with the trait in_flight"
        )
    elif rollout.too_old == "mask" and rollout.max_age is None:
        wrong = "rollout.too_old is 'mask' without an age; expected rollout.max_age"
    if wrong:
        raise UsageError(f"rollout.in_flight is true and {wrong}")


def with_own_data(env: dict[str, Any]) -> dict[str, Any]:
    """[env] with the file of --data in place of the recipe's generated problems, whose kind has no option `path`."""
    known = {field.name for field in fields(MATH_KINDS.get(str(env.get("kind")), MathFile))}
    return {"held_out": HELD_OUT, **env, "kind": "file"} if "path" in env and "path" not in known else env


def check_evaluated(key: str, data: str) -> None:
    """Refuse the name of evaluation data that is neither one of EVALUATED nor that of a file."""
    if data not in EVALUATED and "/" not in data and Path(data).suffix not in readers.SUFFIXES:
        raise UsageError(unknown(key, data, (*EVALUATED, "FILE.jsonl", "FILE.parquet")))


def check_model(spec: LLMSpec) -> None:
    """Require a folder or a starter and a known device; refuse a warm start of pretrained weights or of adapters."""
    model, warm, lora = spec.model, spec.warm_start, spec.lora
    parse_device(model.device)
    if (model.path is None) == (model.build is None):
        raise UsageError(
            f"model.path is {model.path!r} and model.build {model.build!r}; expected one of them: the folder of a "
            "model, or the starter to build"
        )
    if warm.pass_rate > 0 and (model.path is not None or model.build == "smollm2"):
        raise UsageError(
            "warm_start.pass_rate is set for a pretrained model; phase 0 teaches starter models only: "
            "--set warm_start.pass_rate=0"
        )
    if warm.pass_rate > 0 and lora.rank:  # a checkpoint holds the adapter, not the base model below it
        raise UsageError(
            f"lora.rank is {lora.rank} and warm_start.pass_rate {warm.pass_rate}: phase 0 trains all weights, but an "
            "adapter needs a fixed base; build the starter with `pmdkit export starter DIR`, then --set "
            "model.path=DIR, without model.build, and warm_start.pass_rate=0"
        )


def check_rewards(table: RewardTable, width: int) -> None:
    """Refuse [[reward]] tables that cannot work."""
    overlong = SHIPPED_REWARDS[1]
    if table.grade == overlong:
        raise UsageError(f"the first [[reward]] is {overlong}; expected one that decides what passes, math or your own")
    terms = (table, *table.others)
    for term in terms:
        if term.grade not in SHIPPED_REWARDS and not is_path(term.grade):
            raise UsageError(unknown("reward", term.grade, SHIPPED_REWARDS) + ", or your own as my.py:fn")
        if (term.grade == overlong) != (term.soft_punish_cache is not None) or (term.soft_punish_cache or 0) > width:
            raise UsageError(
                f"soft_punish_cache is {term.soft_punish_cache} for the reward {term.part}; expected a number of "
                f"tokens up to rollout.width ({width}) for {overlong}, and for no other"
            )
        if term.grade not in ("math", overlong):
            identify(term.grade)
    parts = [term.part for term in terms]
    for part in parts:
        if parts.count(part) > 1:
            raise UsageError(
                f"two [[reward]] tables are called {part}; give one of them its own name, beside its grade"
            )


def check_processes(processes: int, device: str) -> None:
    """Raise if this machine cannot run so many processes of a run: each takes its own accelerator, or a core."""
    need("accelerate", "a run with several processes")
    gpus, cores = torch.cuda.device_count() if device != "cpu" else 0, os.cpu_count() or 1
    most = gpus or max(2, cores)
    if device != "cpu" and processes > most:
        raise EnvironmentLacks(
            f"{processes} processes are to run here, and this machine shows {gpus} accelerators and {cores} cores: "
            f"--set parallel.processes={most}, or model.device=cpu, or several machines (docs/use/cluster.md)"
        )


def check_requirements() -> None:
    """Raise if a package is missing, with the command that installs it."""
    missing = [package for module, package in NEEDS.items() if find_spec(module) is None]
    if missing:
        raise EnvironmentLacks(f"the language-model tier needs {', '.join(missing)}; {remedy('llm')}")
