"""Rehearse a recipe: every process that differs in one of its own, then the verdict, and what would fit.

The processes are Python started anew, since their torch believes in a device that this machine lacks.
"""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from pmdkit.errors import ComponentDied, EnvironmentLacks, UsageError
from pmdkit.llm.engines import CENTRAL
from pmdkit.processes import exit_reason, python_command, python_environment
from pmdkit.resolve import resolve
from pmdkit.specs import LLMSpec
from pmdkit_lab.planner.gpus import GPU, GPUS, parse_gpus
from pmdkit_lab.planner.model_shapes import shape_of
from pmdkit_lab.rehearsal.compiled import compile_device

GIB = 2**30
FILLED = 0.9  # share of an accelerator's memory that may be filled, as in a plan; libraries and fragmentation need some
SITES = 12  # lines of allocation shown for the fullest phase of each kind
START = (
    "import sys; from pmdkit_lab.rehearsal import compiled; sys.argv[1] and compiled.load(sys.argv[1]); "
    "from pmdkit_lab.rehearsal import rank; rank.main()"
)


def rehearse(
    recipe: str,
    changes: Mapping[str, Any],
    gpus: str | None = None,
    trust: Sequence[str] = (),
    layers: int | None = None,
) -> dict[str, Any]:
    """The report that `pmdkit llm RECIPE --rehearse --json` prints; of one step of two micro-batches.

    Args:
        recipe, changes, trust: as for `resolve`.
        gpus: number and kind, such as 32xH100; by default an H100 for each of parallel.processes.
        layers: of the model, fewer than it has: for tests.

    Raises:
        UsageError: a recipe or an option that a run would refuse.
        EnvironmentLacks: no configuration of the model, or no compiler.
    """
    spec, _ = resolve("llm", recipe, changes, trust=trust)
    count, gpu = (spec.parallel.processes, GPUS["H100"]) if gpus is None else parse_gpus(gpus)
    if count != spec.parallel.processes:
        changes = {**changes, "parallel.processes": count}
        spec, _ = resolve("llm", recipe, changes, trust=trust)
    if spec.model.device.startswith("cpu"):
        raise UsageError(f"model.device is '{spec.model.device}'; a rehearsal is of accelerators: leave it out")
    if spec.rollout.engine == "vllm" and count % spec.vllm.tensor_parallel:
        raise UsageError(f"vllm.tensor_parallel is {spec.vllm.tensor_parallel} on {count} accelerators; give a divisor")
    shape_of(spec)  # refuses a model without a configuration before anything is compiled
    library = "" if torch.version.cuda else str(compile_device())
    given = {"recipe": recipe, "changes": dict(changes), "trust": list(trust), "gib": gpu.gib, "layers": layers}
    ranks = sorted({0, count // 2, count - 1})
    found = rehearse_ranks(library, [{**given, "rank": rank} for rank in ranks])
    report = verdict(spec, gpu, found)
    if not report["fits"] and not report["mistakes"]:
        report["would_fit"] = remedy(spec, gpu, report, library, given)
    return {**report, "verdict": sentence(report)}


def sentence(report: Mapping[str, Any]) -> str:
    """The verdict in words."""
    if report["mistakes"]:
        first = report["mistakes"][0]
        return f"rank {first['rank']}, {first['phase']}: {first['problem']} ({first['where']})"
    room = f"{report['peak_gib']:.1f} GiB of {report['limit_gib']:.1f} that may be filled"
    if report["fits"]:
        return f"fits: {room}"
    change = report["would_fit"]
    other = "fewer tokens in a response, or more accelerators with parallel.strategy=fsdp2"
    return f"does not fit: {room}; " + (
        f"would fit: {change['options']}" if change else f"no single change does: {other}"
    )


def rehearse_ranks(library: str, requests: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What each process found, from a Python that loads the compiled device, if one is given, before torch."""
    environment = {**os.environ, **python_environment(), "OMP_NUM_THREADS": "1"}
    command, asked = python_command("-c", START, library), json.dumps(requests)
    ended = subprocess.run(command, input=asked, capture_output=True, text=True, env=environment)
    if ended.returncode:
        last = (ended.stderr.strip().splitlines() or ["no message"])[-1]
        if "rehearsal/device.py" in ended.stderr:
            raise EnvironmentLacks(
                f"the rehearsal does not know torch {torch.__version__}: {last}; take the version in constraints.txt"
            )
        raise ComponentDied(f"the rehearsal {exit_reason(ended.returncode)}: {last}; free memory, and try again")
    found: list[dict[str, Any]] = json.loads(ended.stdout.splitlines()[-1])
    for one in found:
        if one.get("code") == UsageError.exit_code:
            raise UsageError(one["problem"])
        if one.get("code") == EnvironmentLacks.exit_code:
            raise EnvironmentLacks(one["problem"])
    return found


def verdict(spec: LLMSpec, gpu: GPU, found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The report of all processes: of each phase the fullest one's memory, and the first one's counts."""
    limit = FILLED * gpu.gib
    phases: dict[str, Any] = {}
    for name in dict.fromkeys(name for one in found for name in one.get("phases", {})):
        held = [one["phases"][name] for one in found if name in one.get("phases", {})]
        fullest = max(held, key=lambda phase: phase["peak"])
        sites = sorted(fullest["sites"].items(), key=lambda pair: -pair[1])[:SITES]
        phases[name] = {
            "peak_gib": fullest["peak"] / GIB,
            "sites_gib": {site: size / GIB for site, size in sites if size >= 2**20},
            "traffic_gib": {kind: size / GIB for kind, size in held[0]["traffic"].items()},
            "products_tflop": {kind: flops / 1e12 for kind, flops in held[0]["products"].items()},
            "kernels": held[0]["kernels"],
            "waits": held[0]["waits"],
        }
    mistakes = [{key: one[key] for key in ("rank", "phase", "problem", "where")} for one in found if "problem" in one]
    peak = max((phase["peak_gib"] for phase in phases.values()), default=0.0)
    return {
        "recipe": spec.name,
        "gpus": f"{spec.parallel.processes}x{gpu.name}",
        "rehearsed": not skipped(spec) and not mistakes,
        "skipped": skipped(spec),
        "ranks": [one["rank"] for one in found],
        "fits": not mistakes and peak <= limit,
        "peak_gib": peak,
        "limit_gib": limit,
        "phases": phases,
        "mistakes": mistakes,
        "would_fit": None,
        "seconds": max(one.get("seconds", 0.0) for one in found),
    }


def skipped(spec: LLMSpec) -> list[str]:
    """Parts of a recipe that a rehearsal leaves out."""
    rollout = spec.rollout
    parts = {
        f"the servers of rollout.engine = '{rollout.engine}', and sending weights to them": rollout.engine in CENTRAL,
        "rollouts ahead of the updates (rollout.lag), and the copy of the weights on the host": rollout.lag > 0,
        f"the environment {rollout.environment}": rollout.environment is not None,
        "phase 0, which teaches the starter": spec.warm_start.pass_rate > 0,
    }
    return [part for part, present in parts.items() if present]


def remedy(
    spec: LLMSpec, gpu: GPU, report: Mapping[str, Any], library: str, given: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Options with which the first process fits, rehearsed: one alone if possible, else all together; None if not."""
    peaks = {name: phase["peak_gib"] for name, phase in report["phases"].items()}
    over = {name: peak for name, peak in peaks.items() if peak > report["limit_gib"]}
    options: list[dict[str, Any]] = []
    if over.keys() & {"publish", "rollout", "score"} and spec.rollout.engine == "vllm":
        share = int(100 * (spec.vllm.memory - (max(over.values()) - report["limit_gib"]) / gpu.gib)) / 100
        options += [{"vllm.memory": share}] if share > 0 else []
    if not spec.model.checkpointing:
        options.append({"model.checkpointing": True})
    longest = spec.rollout.max_prompt + spec.rollout.width
    if spec.update.token_budget > longest:
        options.append({"update.token_budget": longest})
    if spec.parallel.processes > 1 and spec.parallel.strategy != "fsdp2":
        options.append({"parallel.strategy": "fsdp2"})
    if len(options) > 1:
        options.append({key: value for option in options for key, value in option.items()})
    requests = [{**given, "changes": {**given["changes"], **option}, "rank": 0} for option in options]
    for option, found in zip(options, rehearse_ranks(library, requests) if requests else [], strict=True):
        changed = verdict(spec, gpu, [found])
        if changed["fits"]:
            words = " ".join(f"{key}={str(value).lower()}" for key, value in option.items())
            return {"options": f"--set {words}", "peak_gib": changed["peak_gib"]}
    return None
