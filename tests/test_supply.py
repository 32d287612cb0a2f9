"""What is installed and what is published comes from files that were named before."""

import re
import runpy
import subprocess
import sys
from datetime import date, timedelta
from pathlib import Path

import pytest

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
