"""Rehearse a recipe: run each distinct process in a subprocess, then report memory and settings that would fit.

The processes are Python started anew, since their torch believes in a device that this machine lacks.
"""

import hashlib
import json
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from pmdkit.child_processes import exit_reason, python_command, python_environment
from pmdkit.cli.options import RunOptions
from pmdkit.errors import ComponentDied, EnvironmentLacks, UsageError, first_line
from pmdkit.hub import cache_folder
from pmdkit.llm.engines import engine_traits
from pmdkit.plugins import is_path
from pmdkit.resolve import resolve
from pmdkit.specs import LLMSpec
from pmdkit_lab.planner.checkpointing import decide
from pmdkit_lab.planner.cluster import PRACTICE, Cluster
from pmdkit_lab.planner.data_sheets import GPU, GPUS, parse_gpus
from pmdkit_lab.planner.memory import GIB
from pmdkit_lab.planner.model_shapes import shape_of
from pmdkit_lab.planner.predict import Prediction, advice
from pmdkit_lab.planner.step_time import update
from pmdkit_lab.planner.workload import lengths, serving, sizes_of, work_of
from pmdkit_lab.rehearsal import accepted

SOURCE = Path(__file__).with_name("device.cpp")
SITES = 12  # allocation sites shown for the largest phase of each kind
COSTLIEST = 10  # operators shown
START = (
    "import ctypes, sys; ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL); "
    "from pmdkit_lab.rehearsal import rank; rank.main()"
)


def rehearse(
    recipe: str, changes: Mapping[str, Any], gpus: str | None = None, trust: Sequence[str] = ()
) -> dict[str, Any]:
    """The report that `pmdkit llm RECIPE --rehearse --json` prints; of one step of two micro-batches.

    Args:
        recipe, changes, trust: as for `resolve`.
        gpus: number and kind, such as 32xH100; by default an H100 for each of parallel.processes.

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
    if is_path(spec.rollout.engine):
        raise UsageError(
            f"rollout.engine is {spec.rollout.engine}, which no rehearsal knows; name transformers or vllm"
        )
    if count % (span := engine_traits(spec).span):
        raise UsageError(f"vllm.tensor_parallel is {span} on {count} accelerators; give a divisor")
    shape_of(spec)  # refuse a model without a configuration before compiling anything
    if spec.model.checkpointing == "auto":
        changes = {**changes, "model.checkpointing": decide(spec, gpu.gib)[0]}
        spec, _ = resolve("llm", recipe, changes, trust=trust)
    given = {"recipe": recipe, "changes": dict(changes), "trust": list(trust), "gpu": gpu.name}
    between = [{**given, "rank": count // 2, "like": count - 1}] if count > 2 else []
    ends = [{**given, "rank": rank} for rank in sorted({0, count - 1})]
    found = rehearse_ranks([*ends, *between])
    report = verdict(spec, gpu, found)
    key = accepted.key_of(recipe, changes, report["gpus"])
    before, path = accepted.load(key)
    if before is not None:
        report |= {"accepted": f"with torch {before['torch']}, in {path}"}
        report |= {"deviations": accepted.deviations(found, before)}
    elif report["fits"]:
        accepted.save(key, accepted.record_of(found), path)
    if report["fits"] or report["mistakes"]:
        return report
    # assume the planner's error is the same for its suggestions; take the first that fits in a rehearsal
    plan = Prediction(
        sizes_of(spec), work_of(spec), lengths("direct", spec.rollout.width), Cluster(gpu, count, serving(spec)[0])
    )
    error = min(1.0, max(plan.memory.totals.values()) / report["peak_gib"])
    plan = replace(plan, efficiency=replace(PRACTICE, memory=PRACTICE.memory * error))
    words = [made["words"] for made in advice(plan)]
    options = [words.replace("--set ", "") for words in words if "--" not in words.replace("--set ", "")]
    other = [{**given, "changes": {**changes, **RunOptions(set=one.split()).changes()}, "rank": 0} for one in options]
    for option, first in zip(options, rehearse_ranks(other), strict=True):
        changed = verdict(spec, gpu, [first])
        if changed["fits"]:
            report["would_fit"] = {"options": f"--set {option}", "peak_gib": changed["peak_gib"]}
            return {**report, "verdict": f"{report['verdict']}; would fit: --set {option}"}
    other_ways = "fewer tokens in a response, or more accelerators with parallel.strategy=fsdp2"
    return {**report, "verdict": f"{report['verdict']}; no setting that was tried does: {other_ways}"}


def rehearse_ranks(requests: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Run the processes in a Python that loads only the compiled device, before torch; return their results."""
    if not requests:
        return []
    library = str(compile_device())
    environment = {**os.environ, **python_environment(), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
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
    for kind in (UsageError, EnvironmentLacks):
        if refused := [one["problem"] for one in found if one.get("code") == kind.exit_code]:
            raise kind(refused[0])
    return found


def verdict(spec: LLMSpec, gpu: GPU, found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Combine the processes' reports: for each phase the largest memory, and the first process's counts."""
    phases: dict[str, Any] = {}
    place = Cluster(gpu, spec.parallel.processes, serving(spec)[0])
    for name in dict.fromkeys(name for one in found for name in one["phases"]):
        held = [one["phases"][name] for one in found if name in one["phases"]]
        fullest = max(held, key=lambda phase: phase["peak"])
        sites = sorted(fullest["sites"].items(), key=lambda pair: -pair[1])[:SITES]
        phases[name] = {
            "peak_gib": fullest["peak"] / GIB,
            "sites_gib": {site: size / GIB for site, size in sites if size >= 2**20},
            "traffic_gib": {kind: size / GIB for kind, size in held[0]["traffic"].items()},
            "products_tflop": {kind: flops / 1e12 for kind, flops in held[0]["products"].items()},
            "kernels": held[0]["kernels"],
            "waits": held[0]["waits"],
            # transfers beside the kernels
            "seconds": max(max(phase["seconds"], transfer_seconds(phase["traffic"], place)) for phase in held),
        }
    mistakes = [{key: one[key] for key in ("rank", "phase", "problem", "where")} for one in found if "problem" in one]
    mistakes += accepted.unlike_calls(found)
    peak, limit = max((phase["peak_gib"] for phase in phases.values()), default=0.0), PRACTICE.memory * gpu.gib
    fits = not mistakes and peak <= limit
    words = f"{'fits' if fits else 'does not fit'}: {peak:.1f} GiB of {limit:.1f} that may be filled"
    if mistakes:
        words = "rank {rank}, {phase}: {problem} ({where})".format(**mistakes[0])
    rollout = spec.rollout
    parts = {  # parts of a recipe that a rehearsal leaves out
        f"the servers of rollout.engine = '{rollout.engine}', and sending weights to them": engine_traits(spec).central,
        "rollouts ahead of the updates (rollout.lag), and the copy of the weights on the host": rollout.lag > 0,
        f"the environment {rollout.environment}": rollout.environment is not None,
        "phase 0, which teaches the starter": spec.warm_start.pass_rate > 0,
    }
    skipped = [part for part, present in parts.items() if present]
    return {
        "recipe": spec.name,
        "gpus": f"{spec.parallel.processes}x{gpu.name}",
        "rehearsed": not skipped and not mistakes,
        "skipped": skipped,
        "ranks": [one["rank"] for one in found if "like" not in one],
        "alike": {one["rank"]: one["like"] for one in found if "like" in one},
        "fits": fits,
        "peak_gib": peak,
        "limit_gib": limit,
        "phases": phases,
        "costliest": costliest(found[0]["phases"].values()),
        "step_seconds": step_seconds(spec, phases, place),
        "accepted": None,
        "deviations": [],
        "mistakes": mistakes,
        "would_fit": None,
        "verdict": words,
        "seconds": max(one.get("seconds", 0.0) for one in found),
    }


def transfer_seconds(traffic: Mapping[str, int], place: Cluster) -> float:
    """Seconds of a phase's collectives at the full rate of the links; a sum over processes sends everything twice."""
    sent = sum(size * (2 if "reduce float" in kind else 1) for kind, size in traffic.items())
    return sent * (place.count - 1) / place.count / place.ring


def costliest(phases: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The operators that take most of the predicted time, by line and with the slowest first.

    Over all phases: `seconds`, `calls`, `tflop`, memory traffic in `gb`, and the seconds that `fusing_saves`.
    """
    costs: dict[str, list[float]] = {}
    for phase in phases:
        for site, cost in phase["costs"].items():
            costs[site] = [a + b for a, b in zip(costs.get(site, [0] * len(cost)), cost, strict=True)]
    most = sorted(costs.items(), key=lambda pair: -pair[1][0])[:COSTLIEST]
    names = ("seconds", "calls", "tflop", "gb", "fusing_saves")
    units = (1, 1, 1e12, 1e9, 1)
    return [
        {"where": site, **{name: a / b for name, a, b in zip(names, cost, units, strict=True)}} for site, cost in most
    ]


def step_seconds(spec: LLMSpec, phases: Mapping[str, Any], place: Cluster) -> dict[str, float]:
    """`passes` of a step's updates in each process, as the planner expects them; the seconds of the `update`, from the
    rehearsed phases; and the seconds `planned`, from the planner alone. Empty without rehearsed updates."""
    if "update" not in phases or "optimizer" not in phases:
        return {}
    work = work_of(spec)
    updates = work.ministeps * work.passes
    planned = update(sizes_of(spec), work, lengths("direct", spec.rollout.width), place, PRACTICE)
    each = phases["update"]["seconds"] / 2
    seconds = updates * (planned.visits * each + phases["optimizer"]["seconds"])
    return {"passes": updates * planned.visits, "update": seconds, "planned": planned.seconds}


def compile_device() -> Path:
    """Path of device.cpp compiled for this torch; the system's compiler builds it once, into the user's cache.

    Torch asks as soon as it is imported whether there is a device, so the library is loaded before.

    Raises:
        EnvironmentLacks: there is no C++ compiler, or it fails.
    """
    where = Path(torch.__file__).parent
    key = hashlib.sha256(SOURCE.read_bytes() + torch.__version__.encode() + str(where).encode()).hexdigest()[:16]
    library, compiler = cache_folder() / f"rehearsal-{key}.so", os.environ.get("CXX", "c++")
    if library.exists():
        return library
    part = library.with_suffix(f".{os.getpid()}")
    command = [compiler, "-O1", "-std=c++20", "-shared", "-fPIC", f"-I{where / 'include'}", str(SOURCE)]
    command += [f"-L{where / 'lib'}", f"-Wl,-rpath,{where / 'lib'}", "-lc10", "-ltorch_cpu", "-o", str(part)]
    try:
        library.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(command, capture_output=True, text=True, check=True)
        part.replace(library)
    except (OSError, subprocess.CalledProcessError) as problem:
        lines = [line for line in str(getattr(problem, "stderr", "")).splitlines() if "error" in line]
        raise EnvironmentLacks(
            f"a rehearsal compiles 60 lines of C++ once, and {compiler} does not make {library} of them: "
            f"{lines[0][:200] if lines else first_line(problem)}; install a compiler with C++20, such as "
            "g++ 10 or later (apt install g++, dnf install gcc-c++, xcode-select --install), or name one in CXX"
        ) from problem
    return library
