"""Writes the lock files beside it: sha256 of every file that PyPI has of the versions in constraints.txt.

tools/lock.sh runs it, after constraints.txt changed. torch has a file of its own, with the build for CPUs
that pip finds here: of builds for accelerators and their libraries no hash is written down. Read what changed before
you commit it.
"""

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
PYTHON = "3.11.7"  # resolution looks at its markers; files of all Pythons and systems are listed
UV = [sys.executable, "-m", "uv", "pip", "compile", "-q", "--generate-hashes", "--no-header", "--no-annotate"]
HEAD = "# Files on PyPI of {what}. Written by requirements/lock.py; install with --require-hashes.\n"
AUDIT = "pip-audit==2.10.1"


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


def main() -> None:
    """Write all three."""
    constraints = (HERE.parent / "constraints.txt").read_text()
    torch = next(line for line in constraints.splitlines() if line.startswith("torch=="))
    locked = compile_lock(constraints, "--no-deps", "--no-emit-package", "torch")
    (HERE / "hashes.txt").write_text(HEAD.format(what="the versions in constraints.txt, but torch") + locked)
    (HERE / "audit.txt").write_text(
        HEAD.format(what="pip-audit and what it needs") + compile_lock(AUDIT, "--universal")
    )
    (HERE / "torch.txt").write_text(cpu_build(torch))


if __name__ == "__main__":
    main()
