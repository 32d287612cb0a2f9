"""What is installed and what is published comes from files that were named before."""

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
