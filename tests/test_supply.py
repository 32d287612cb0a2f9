"""What is installed and what is published comes from files that were named before."""

import ast
import os
import re
import runpy
import subprocess
import sys
import zipfile
from datetime import date, timedelta
from pathlib import Path

import pytest
import torch

from pmdkit.llm.engines.base import EngineConfig, Sampling
from pmdkit.llm.engines.vllm.arguments import llm_arguments, sampling_arguments
from pmdkit.specs.llm import RolloutTable, VLLMOptions, VLLMTable

ROOT = Path(__file__).parents[1]
audit = runpy.run_path(str(ROOT / "requirements" / "audit.py"))


@pytest.mark.parametrize(("days", "code"), [(0, 3), (audit["DAYS"], 3), (audit["DAYS"] + 1, 4)])
def test_pins_that_nobody_could_be_asked_about_may_be_used_for_a_while(days, code):
    assert audit["not_asked"]("no network", date(2026, 1, 1), date(2026, 1, 1) + timedelta(days))[0] == code


@pytest.mark.parametrize("named", ["v4", "release/v1", "main", "3d3c42e", "3d3c42e5aac5ba805825da76410c181273ba90b1"])
def test_an_action_is_named_by_commit_and_version(named, tmp_path):
    (tmp_path / "a.yml").write_text(f"      - uses: actions/checkout@{named}\n")
    assert len(audit["wrong_actions"](tmp_path)) == 1
    assert audit["wrong_actions"](ROOT / ".github" / "workflows") == []


KIT = ROOT / "packages" / "pmdkit-course" / "pmdkit_course" / "kit_files" / "gradescope"
PLACES = (".github/workflows/*.yml", ".devcontainer/*", ".ci/*", "tools/*.sh", "tests/*/run.sh", "Dockerfile")
SCRIPTS = sorted([*KIT.iterdir(), *(path for place in PLACES for path in ROOT.glob(place))])
INSTALLS = re.compile(r"pip3? install|^\s*\$?pip |(?:^\s*|run: |\")make \S*installed|npm (?:i|install|ci)\b")
HASHED = re.compile(r"--require-hashes|\$hashed|--no-index|--no-deps.* -e |^\s*#|^pip=|\(\) *\{")
WHY_NOT = "no hashes: "


def unhashed(text):
    """Installs without hashes that neither the line before nor the head of the script gives a reason for."""
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    if any(WHY_NOT in line for line in lines[:12]):
        return []
    pairs = zip(["", *lines], lines, strict=False)
    return [
        line for before, line in pairs if INSTALLS.search(line) and not HASHED.search(line) and WHY_NOT not in before
    ]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_install_is_by_hash_or_says_why_not(path):
    assert unhashed(path.read_text()) == []


@pytest.mark.parametrize(
    "line",
    [
        "pip install -c constraints.txt torch",
        "      - run: .venv/bin/python -m pip install --upgrade transformers",
        "  .venv/bin/python -m pip install -q \\\n    uv==0.13.9",
        'pip() { .venv/bin/python -m pip install -q "$@"; }\npip -r requirements.txt',
        "      - run: make .venv/installed-dev PYTHON=python",
    ],
)
def test_an_install_without_hashes_is_found(line):
    assert len(unhashed(line)) == 1
    assert unhashed(f"# no hashes: there are none\n{line}") == []


@pytest.mark.nightly
def test_the_versions_for_gpus_agree(tmp_path):
    """uv reads what every package asks for, of wheels with CUDA for a machine that this one is not."""
    pins = (ROOT / "constraints-gpu.txt").read_text().splitlines()
    pins = {name: version for name, _, version in (pin.partition("==") for pin in pins if not pin.startswith("#"))}
    wanted = tmp_path / "wanted.in"
    wanted.write_text(
        f"pmdkit[llm,lora,vllm] @ {ROOT.as_uri()}\nstrict-answers @ {(ROOT / 'packages/strict-answers').as_uri()}\n"
    )
    tool = tmp_path / "uv"
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--target", str(tool), "uv>=0.8"], check=True)
    command = [tool / "bin" / "uv", "pip", "compile", "-q", "-c", ROOT / "constraints-gpu.txt", "--no-annotate", wanted]
    platform = ["--python-version", "3.12", "--python-platform", "x86_64-manylinux_2_35"]
    done = subprocess.run([*map(str, command), *platform], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    found = dict(line.split("==") for line in done.stdout.splitlines() if "==" in line)
    assert pins.items() <= found.items()


def names_of(source):
    """Names that a module has at its top level; those of a lazy module are strings in it."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom | ast.Import):
            found |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return found


def lacking(wheels, sources):
    """What these sources import of the wheels' packages, as module and name, that is not in them."""
    held = {name for wheel in wheels.values() for name in wheel.namelist()}
    missing = []
    for module, name in sorted(
        {pair for source in sources for pair in imported(source) if pair[0].split(".")[0] in wheels}
    ):
        path, wheel = module.replace(".", "/"), wheels[module.split(".")[0]]
        file = next((file for file in (f"{path}.py", f"{path}/__init__.py") if file in held), None)
        inside = {f"{path}/{name}.py", f"{path}/{name}/__init__.py"} & held
        known = file is not None and (name == "" or inside or name in names_of(wheel.read(file)))
        if not known and file == "transformers/__init__.py":  # it exports whatever its modules list in __all__
            sources = (wheel.read(other) for other in wheel.namelist() if other.endswith(".py"))
            known = any(f'"{name}"'.encode() in source and b"__all__" in source for source in sources)
        if not known:
            missing.append(f"{module}: {name}")
    return missing


def imported(source):
    """Pairs of a module and a name that a source imports from it; "" for the module itself."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)


@pytest.mark.nightly
def test_the_wheels_for_gpus_have_every_name_that_is_used(tmp_path):
    """Read, not imported: imports of torch, transformers and vLLM, vLLM's arguments, its methods and its routes."""
    lines = (ROOT / "constraints-gpu.txt").read_text().splitlines()
    pins = [line for line in lines if line.startswith(("vllm", "torch", "transformers"))]
    platforms = [word for tag in ("manylinux_2_28", "manylinux2014") for word in ("--platform", f"{tag}_x86_64")]
    places = os.environ.get("GPU_WHEELS", tmp_path)  # a folder that holds them already
    options = ["-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "--python-version", "3.12"]
    command = [sys.executable, *options, *platforms, "--find-links", str(places), "-d", str(places), *pins]
    subprocess.run(command, check=True)
    wheels = {path.name.partition("-")[0]: zipfile.ZipFile(path) for path in Path(places).glob("*.whl")}
    files = [*(ROOT / "pmdkit").rglob("*.py"), *(ROOT / "packages/pmdkit-lab/pmdkit_lab/rehearsal").glob("*.py")]
    assert lacking(wheels, [path.read_text() for path in files]) == []
    assert lacking(wheels, ["from vllm import LLN, SamplingParams\nimport torch.gone"]) == ["torch.gone: ", "vllm: LLN"]

    def held(under):
        text = [wheels["vllm"].read(name) for name in wheels["vllm"].namelist() if re.fullmatch(under, name)]
        return set().union(*map(names_of, text))

    engine = ROOT / "pmdkit/llm/engines/vllm"
    config = EngineConfig(
        None, None, (2,), RolloutTable(engine="vllm"), VLLMTable(rows=1), size=2, device=torch.device("cuda")
    )
    arguments = llm_arguments(config, tmp_path).keys() | VLLMOptions.__annotations__.keys()
    assert arguments <= held(r"vllm/engine/arg_utils\.py")
    colocate, served = (engine / "colocate.py").read_text(), (engine / "server.py").read_text()
    assert set(re.findall(r"self\.llm\.(\w+)\(", colocate)) <= held(
        r"vllm/entrypoints/(llm|offline_utils)\.py|vllm/entrypoints/.*/offline.*\.py"
    )
    assert sampling_arguments(Sampling(1), [2]).keys() <= held(r"vllm/sampling_params\.py")
    routes = {route.partition("?")[0] for route in re.findall(r'"(/[a-z0-9_/?=]+)"', served)}
    assert len(routes) > 8
    assert routes <= held(r"vllm/entrypoints/.*\.py")
    assert {"reload_weights", "weights_iterator", "weights_path", "update_config", "overrides"} <= held(
        r"vllm/v1/worker/gpu_.*\.py"
    )
