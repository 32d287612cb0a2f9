"""Checks what the tested environment is made of: hashes, bounds, what is installed; and asks for known vulnerabilities.

`python requirements/audit.py` checks what can be checked without a network. With --ask it asks PyPI, by pip-audit,
about every pin. Exit codes: 0 nothing found, 3 nobody could be asked, 4 something is wrong, one line each.
Not asked is a warning for pins that were looked up in the last 60 days, and wrong for older ones.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from datetime import date
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
OURS = ("pmdkit", "strict-answers", "pmdkit-lab", "pmdkit-course", "pmdkit-adapters")
PROJECTS = (ROOT, *(ROOT / "packages" / name for name in OURS[1:]))
DAYS = 60
"How old pins may be that nobody could be asked about: holes become known later than versions."
CANARY = "jinja2==2.4.1"
"A version with holes that were published years ago: a service that knows of none was not asked."
AUDIT = [
    str(ROOT / ".venv-audit" / "bin" / "pip-audit"),
    "-f",
    "json",
    "--no-deps",
    "--disable-pip",
    "--progress-spinner",
    "off",
]


def pins(path: Path) -> dict[str, str]:
    """Name to version of every `name==version` line."""
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", path.read_text(), re.M)
    return {name.lower().replace("_", "-"): version for name, version in found}


def hashes(path: Path) -> dict[str, int]:
    """Name to number of sha256 sums."""
    found: dict[str, int] = {}
    name = ""
    for line in path.read_text().splitlines():
        if head := re.match(r"([A-Za-z0-9._-]+)==", line):
            name = head[1].lower()
            found[name] = 0
        if name:
            found[name] += len(re.findall(r"--hash=sha256:[0-9a-f]{64}\b", line))
    return found


def numbers(version: str) -> tuple[int, ...]:
    """The release of a version as numbers, for a comparison."""
    return tuple(int(part) for part in re.match(r"[\d.]+", version)[0].strip(".").split("."))  # type: ignore[index]


def wrong_locks(constraints: dict[str, str], *locks: Path) -> list[str]:
    """Pins that the locks have otherwise, and pins without a hash."""
    locked = {name: version for lock in locks for name, version in pins(lock).items()}
    counted = {name: count for lock in locks for name, count in hashes(lock).items()}
    found = [f"{name} is {version} in constraints.txt and {locked.get(name)} in requirements/: run tools/lock.sh"
             for name, version in constraints.items() if locked.get(name) != version]  # fmt: skip
    found += [f"{name} is in requirements/ and not in constraints.txt" for name in locked.keys() - constraints.keys()]
    return found + [f"{name} has no hash in requirements/" for name, count in counted.items() if not count]


def wrong_actions(workflows: Path) -> list[str]:
    """Actions of others that are not named by a commit: a tag can be moved to other code."""
    return [
        f"{file.name}: {line.strip()} is not a commit of 40 digits and its version"
        for file in sorted(workflows.glob("*.yml"))
        for line in file.read_text().splitlines()
        if "uses:" in line and not re.search(r"uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line)
    ]


def wrong_bounds(constraints: dict[str, str], project: dict[str, object]) -> list[str]:
    """Pins outside the ranges of a pyproject.toml, and dependencies without a lower bound."""
    extras = project.get("optional-dependencies", {})
    assert isinstance(extras, dict)
    found = []
    for line in [*project["dependencies"], *(line for lines in extras.values() for line in lines)]:  # type: ignore[misc]
        name = re.match(r"[A-Za-z0-9._-]+", line)[0].lower()
        bounds = re.findall(r"(>=|<)\s*([\d.]+)", line.partition(";")[0])
        if name in OURS:
            continue
        if not any(sign == ">=" for sign, _ in bounds):
            found.append(f"{line} has no lower bound in pyproject.toml")
        for sign, bound in bounds if name in constraints else ():
            if (numbers(constraints[name]) >= numbers(bound)) != (sign == ">="):
                found.append(f"{name} is pinned to {constraints[name]} and pyproject.toml asks for {line}")
    return found


def wrong_versions(constraints: dict[str, str]) -> list[str]:
    """What is installed here in another version than the tested one, or not tested at all."""
    ours = {*OURS, "pip", "setuptools", "wheel"}
    found = []
    for each in metadata.distributions():
        name, version = each.metadata["Name"].lower().replace("_", "-"), each.version.split("+")[0]
        if name not in ours and constraints.get(name) != version:
            found.append(f"{name} {version} is installed; tested is {constraints.get(name) or 'none'}")
    return sorted(found)


def ask(lines: str) -> dict[str, list[str]] | str:
    """Name to known vulnerabilities, of those that have any; or why nobody could be asked."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "asked.txt").write_text(lines)
        try:
            done = subprocess.run([*AUDIT, "-r", str(Path(folder) / "asked.txt")], capture_output=True, text=True)
            found = json.loads(done.stdout)["dependencies"]
        except OSError as problem:
            return f"{AUDIT[0]} does not run ({problem.strerror}); tools/audit.sh installs it"
        except (ValueError, KeyError):
            return (done.stderr.strip().splitlines() or ["pip-audit said nothing"])[-1]
    skipped = [one["name"] for one in found if "skip_reason" in one]
    if skipped:
        return f"PyPI's service for vulnerabilities does not know {skipped[0]}, nor {len(skipped) - 1} others"
    return {one["name"]: [hole["id"] for hole in one["vulns"]] for one in found if one["vulns"]}


def not_asked(reason: str, looked_up: date, today: date) -> tuple[int, list[str]]:
    """Exit code and line if nobody could be asked: 3 while the pins are young, then 4."""
    age = (today - looked_up).days
    rest = f"; pins are {age} days old, {DAYS} are allowed without an answer"
    old = "; renew them with tools/lock.sh, or ask where PyPI can be reached" if age > DAYS else ""
    return (4 if age > DAYS else 3), [f"nobody could be asked for vulnerabilities: {reason}{rest}{old}"]


def vulnerable(constraints: dict[str, str]) -> tuple[int, list[str]]:
    """Exit code and lines; a service that knows nothing of the canary was not asked."""
    looked_up = date.fromisoformat(
        re.search(r"^# Looked up on ([\d-]+)\.$", (HERE / "hashes.txt").read_text(), re.M)[1]
    )  # type: ignore[index]
    known = ask(CANARY + "\n")
    if isinstance(known, str) or not known:
        return not_asked(
            known if isinstance(known, str) else f"it knows of no hole in {CANARY}", looked_up, date.today()
        )
    answer = ask("".join(f"{name}=={version}\n" for name, version in constraints.items()))
    if isinstance(answer, str):
        return not_asked(answer, looked_up, date.today())
    return (4 if answer else 0), [f"{name} {constraints[name]}: {', '.join(holes)}" for name, holes in answer.items()]


def main(arguments: list[str]) -> int:
    """Everything; prints one line for each thing that is wrong."""
    constraints = pins(ROOT / "constraints.txt")
    found = wrong_locks(constraints, HERE / "hashes.txt", HERE / "torch.txt")
    for folder in PROJECTS:
        found += wrong_bounds(constraints, tomllib.loads((folder / "pyproject.toml").read_text())["project"])
    image = pins(HERE / "image.txt")
    found += [f"{name} is {version} in requirements/image.txt: run tools/lock.sh" for name, version in image.items()
              if constraints.get(name) != version]  # fmt: skip
    found += wrong_actions(ROOT / ".github" / "workflows")
    found += wrong_versions(constraints)
    for line in found:
        print(f"audit: {line}", file=sys.stderr)
    print(f"audit: {len(constraints)} pins, hashes and bounds: {'wrong, see above' if found else 'as written down'}")
    if "--ask" not in arguments:
        return 4 if found else 0
    code, lines = vulnerable(constraints)
    for line in lines:
        print(f"audit: {line}", file=sys.stderr)
        if code == 3 and "GITHUB_ACTIONS" in os.environ:
            print(f"::warning title=audit::{line}")
    print(f"audit: known vulnerabilities: {({0: 'none', 3: 'NOT ASKED', 4: 'see above'})[code]}")
    return 4 if found else code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
