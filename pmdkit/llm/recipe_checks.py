"""Checks before a run, while no model is loaded: fill in defaults, refuse what cannot work or is not installed."""

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import torch

from pmdkit.envs.math import check_math, readers
from pmdkit.envs.reward_functions import identify
from pmdkit.errors import EnvironmentLacks, UsageError, unknown
from pmdkit.extras import remedy
from pmdkit.llm import ranks
from pmdkit.objectives import Objective, traits
from pmdkit.plugins import is_path
from pmdkit.specs import LLMSpec
from pmdkit.specs.llm import (
    ENVIRONMENTS,
    SHIPPED_REWARDS,
    LoraTable,
    ParallelTable,
    RewardTable,
    RolloutTable,
    VLLMTable,
)

EVALUATED = ("held-out", "aime24", "aime25")
PROMPTS = 64  # per step, if the recipe does not say
NEEDS = {"transformers": "transformers", "tokenizers": "tokenizers", "strict_answers": "strict-answers"}


def resolve_config(spec: LLMSpec, objective: Objective) -> LLMSpec:
    """The spec with its defaults filled in."""
    check_values(spec)
    schedule, model, warm = spec.schedule, spec.model, spec.warm_start
    assert model is not None
    assert warm is not None
    if (model.path is None) == (getattr(model, "build", None) is None):
        raise UsageError(
            f"model.path is {model.path!r} and model.build {getattr(model, 'build', None)!r}; expected one of them: "
            "the folder of a model, or the starter to build"
        )
    if warm.pass_rate > 0 and model.path is not None:
        raise UsageError(
            "warm_start.pass_rate is set for a model from a folder; phase 0 teaches starter "
            "models only: --set warm_start.pass_rate=0"
        )
    prompts = schedule.prompts or PROMPTS
    schedule.check_batch(prompts, traits(objective).needs_peers)
    if schedule.update not in ("auto", "gradient"):
        raise UsageError(f"schedule.update is '{schedule.update}'; a language model is fitted by 'gradient' only")
    if schedule.group is None:
        raise UsageError("schedule.group is not set; a language model draws its responses: give --group, such as 16")
    assert spec.rollout is not None
    if spec.rollout.correction.startswith("token") and traits(objective).level == "response":
        raise UsageError(
            f"rollout.correction is '{spec.rollout.correction}' and {spec.objective['name']} has one loss per response;"
            " expected sequence-truncate or sequence-mask"
        )
    check_environment(spec.rollout)
    vllm = resolve_vllm(spec.rollout, spec.vllm)
    schedule = schedule.model_copy(update={"update": "gradient", "prompts": prompts})
    return spec.model_copy(update={"schedule": schedule, "vllm": vllm, "parallel": resolve_parallel(spec)})


def check_values(spec: LLMSpec) -> None:
    """Refuse values that would otherwise be read only minutes later: problems, device, grader, evaluation."""
    check_math(spec.env)
    device, path = getattr(spec.model, "device", "auto"), getattr(spec.model, "path", None)
    if path is not None and not path.strip():
        raise UsageError("model.path is empty; expected the folder of a model, or a name on the hub")
    if device != "auto":
        try:
            torch.device(device)
        except RuntimeError as problem:
            raise UsageError(f"model.device is '{device}'; expected auto, cpu, cuda or cuda:1") from problem
    if spec.reward is not None and spec.rollout is not None:
        check_rewards(spec.reward, spec.rollout)
        for term in (spec.reward, *spec.reward.others):
            if term.grade not in ("math", SHIPPED_REWARDS[1]):
                identify(term.grade)
    data = "held-out" if spec.evaluation is None else spec.evaluation.data
    if data not in EVALUATED and "/" not in data and Path(data).suffix not in readers.SUFFIXES:
        raise UsageError(unknown("evaluation.data", data, (*EVALUATED, "FILE.jsonl", "FILE.parquet")))


def check_rewards(table: RewardTable, rollout: RolloutTable) -> None:
    """Refuse tables that cannot work, before anything is loaded."""
    overlong = SHIPPED_REWARDS[1]
    if table.grade == overlong:
        raise UsageError(f"the first [[reward]] is {overlong}; expected one that decides what passes, math or your own")
    for term in (table, *table.others):
        if term.grade not in SHIPPED_REWARDS and not is_path(term.grade):
            raise UsageError(unknown("reward", term.grade, SHIPPED_REWARDS) + ", or your own as my.py:fn")
        if (term.grade == overlong) != (term.soft_punish_cache is not None):
            raise UsageError(
                f"soft_punish_cache is {term.soft_punish_cache} for the reward {term.part}; expected a number of "
                f"tokens for {overlong}, and for no other"
            )
        if term.soft_punish_cache is not None and term.soft_punish_cache > rollout.width:
            raise UsageError(
                f"soft_punish_cache is {term.soft_punish_cache} and rollout.width is {rollout.width}; "
                "expected at most rollout.width"
            )
    parts = [term.part for term in (table, *table.others)]
    twice = next((part for part in parts if parts.count(part) > 1), None)
    if twice is not None:
        raise UsageError(f"two [[reward]] tables are called {twice}; give one of them its own name, next to its grade")


def check_environment(rollout: RolloutTable) -> None:
    """Refuse an environment that is unknown, or that conflicts with another option."""
    name = rollout.environment
    if name is None:
        return
    if name not in ENVIRONMENTS and not is_path(name):
        raise UsageError(unknown("rollout.environment", name, ENVIRONMENTS) + ", or your own as my.py:fn")
    if rollout.lag:
        raise UsageError(
            f"rollout.lag is {rollout.lag} with rollout.environment: turns are taken between updates; expected lag 0"
        )


def resolve_vllm(rollout: RolloutTable, vllm: VLLMTable | None) -> VLLMTable:
    """[vllm], checked against the rest of the recipe and adapted to it."""
    vllm = vllm or VLLMTable()
    if rollout.lag and rollout.old == "recompute":
        raise UsageError(
            f"rollout.old is 'recompute' with a lag of {rollout.lag}: the trainer's weights have moved on before a "
            "response arrives; expected old='rollout', or lag 0"
        )
    if rollout.lag and rollout.correction != "none":
        raise UsageError(
            f"rollout.correction is '{rollout.correction}' with a lag of {rollout.lag}: the trainer cannot score with "
            "the weights that wrote a response; expected correction='none', or lag 0"
        )
    if rollout.lag and rollout.max_num_gen_batches > 1:
        raise UsageError(
            f"rollout.max_num_gen_batches is {rollout.max_num_gen_batches} with a lag of {rollout.lag}: the weights "
            "that wrote a response have moved on before rewards are known; expected 1, or lag 0"
        )
    if vllm.urls and rollout.engine != "vllm-server":
        raise UsageError(f"vllm.urls is set and rollout.engine is '{rollout.engine}'; expected 'vllm-server'")
    # an engine that sleeps during updates cannot generate during them
    return vllm.model_copy(update={"sleep": False}) if rollout.lag else vllm


def resolve_parallel(spec: LLMSpec) -> ParallelTable:
    """[parallel], with the processes that `accelerate launch` or torchrun started, if one of them did."""
    table, here = spec.parallel or ParallelTable(), ranks.launched_ranks()
    device = getattr(spec.model, "device", "auto")
    if max(here, table.processes) > 1 and ":" in device:
        raise UsageError(f"model.device is '{device}' for several processes; expected auto or cpu: each has its own")
    if here == 1:
        return table
    sharded = os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true"
    return table.model_copy(update={"processes": here, "strategy": "fsdp2" if sharded else table.strategy})


def check_processes(processes: int, device: str) -> None:
    """Raise if this machine cannot run so many processes of a run: each takes its own accelerator, or a core."""
    if find_spec("accelerate") is None:
        raise EnvironmentLacks(f"several processes need accelerate; {remedy('llm')}")
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


def check_engine(engine: str, urls: Sequence[str]) -> None:
    """Raise if the engine of a recipe cannot run: vLLM is missing here or too old, or no server is named.

    Args:
        engine: rollout.engine.
        urls: vllm.urls.
    """
    if engine == "vllm-server" and not urls:
        raise UsageError(
            "vllm.urls is empty; rollout.engine = 'vllm-server' needs the addresses of running servers, such as "
            "http://127.0.0.1:8000; see docs/use/engines.md for the command that starts one"
        )
    if engine == "vllm":
        from pmdkit.llm.engines.vllm import check_version, installed_version

        check_version(installed_version())


def check_lora_tables(spec: LLMSpec) -> None:
    """Raise if [lora] conflicts with another table: a checkpoint holds the adapter, not the base model below it."""
    if not uses_lora(spec.lora):
        return
    assert spec.lora is not None
    if spec.warm_start is not None and spec.warm_start.pass_rate > 0:
        raise UsageError(
            f"lora.rank is {spec.lora.rank} and warm_start.pass_rate {spec.warm_start.pass_rate}: phase 0 trains all "
            "weights, but an adapter needs a fixed base; build the starter with `pmdkit export starter DIR`, then "
            "--set model.path=DIR, without model.build, and warm_start.pass_rate=0"
        )


def check_lora(spec: LLMSpec) -> None:
    """Raise if this machine or another table keeps the run from training adapters."""
    check_lora_tables(spec)
    if uses_lora(spec.lora):
        check_peft()


def uses_lora(table: LoraTable | None) -> bool:
    """Whether a run trains adapters."""
    return table is not None and table.rank > 0


def check_peft() -> None:
    """Raise if peft is missing, with the command that installs it."""
    if find_spec("peft") is None:
        raise EnvironmentLacks(f"[lora] needs peft; {remedy('lora')}")
