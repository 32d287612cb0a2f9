"""The run folder, the same in all tiers: its files, its lock, where a run resumes, and no secret in any of it."""

import errno
import json
import os
import platform
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import Any

from filelock import FileLock, SoftFileLock, Timeout
from pydantic import BaseModel

from pmdkit import untrusted
from pmdkit.errors import EnvironmentLacks, ResumeRefused, UsageError, short
from pmdkit.extras import version_of
from pmdkit.observe import files, gauge
from pmdkit.specs.table import differences

PACKAGES = ("pmdkit", "torch", "numpy", "scipy", "gymnasium", "safetensors", "transformers", "math-verify")
DEEPEST = 256  # most parts of a path; Python's own functions for whole trees recurse once per level
OBJECT = untrusted.table()
RESTARTS = untrusted.table(steps=list[int])
ROW = untrusted.table(
    **dict.fromkeys(("pass_rate", "log_ratio_min", "response_length"), untrusted.Number | None),
    **dict.fromkeys(("seconds_rollout", "seconds_update"), untrusted.Number),
    step=int,
    tokens=untrusted.Count,
    gauge=list[gauge.StoredBucket] | None,
)
SUMMARY = untrusted.table(
    **dict.fromkeys(("tier", "env", "objective"), str),
    **dict.fromkeys(("steps", "tokens"), untrusted.Count),
    **dict.fromkeys(("pass_rate_first", "pass_rate_last", "reward_first", "reward_last"), untrusted.Number | None),
    seconds=untrusted.Number,
    tau=untrusted.Number | str | untrusted.table(rule=str) | None,
)
NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP)  # errors of network file systems mounted without locks
OWNER = re.compile(r"process [0-9]{1,10} on [\w.-]{1,255}")


class RunFolder:
    """config.json, inputs.json, env.json, metrics.jsonl, summary.json, restarts.json, checkpoints/, figures/,
    evaluations/ and rollouts/."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.json"
        self.metrics = path / "metrics.jsonl"
        self.summary = path / "summary.json"
        self.inputs = path / "inputs.json"
        self.restarts = path / "restarts.json"
        self.checkpoints = path / "checkpoints"
        self.figures = path / "figures"
        self.phase_0 = path / "phase-0"
        self.evaluations = path / "evaluations"
        self.rollouts = path / "rollouts"

    @property
    def started(self) -> bool:
        """Whether a run has been set up here."""
        return os.path.exists(self.config)  # Path.exists raises for some impossible names

    @property
    def finished(self) -> bool:
        """Whether the run here wrote its summary."""
        return os.path.exists(self.summary)

    def refuse_links(self) -> None:
        """Refuse links that lead out of the folder: one from elsewhere could make a command write anywhere."""
        here = os.path.realpath(self.path)  # does not fail on a loop of links
        for inside in self.path.rglob("*"):
            if inside.is_symlink() and not Path(os.path.realpath(inside)).is_relative_to(here):
                raise UsageError(f"{inside} is a link out of the run's folder; put a real file or folder there")

    def read_config(self) -> dict[str, Any]:
        """The resolved configuration of the run."""
        return read_json(self.config)

    def read_summary(self) -> dict[str, Any]:
        """The summary of a finished run, with the keys that every run promises."""
        return untrusted.check_fields(read_json(self.summary), SUMMARY, self.summary, "restore the file")

    def read_metrics(self) -> list[dict[str, Any]]:
        """One dictionary per step, with the columns that every run has; an incomplete last line is ignored."""
        return parse_rows(self.metrics, whole_lines(self.metrics), ROW)

    def append_metrics(self, row: dict[str, Any]) -> None:
        """Write one step, as one line. It is on disk before the step's checkpoint is."""
        files.append(self.metrics, json.dumps(row, allow_nan=False).encode() + b"\n")

    def begin(self, config: dict[str, Any]) -> None:
        """Record the run's configuration, before its first step. A configuration that holds a secret is refused."""
        refuse_secrets(config)
        self.checkpoints.mkdir(mode=0o700, exist_ok=True)
        files.replace(self.path / "env.json", files.encode(describe_machine()))
        files.replace(self.config, files.encode(config))

    def read_restarts(self) -> list[int]:
        """Steps of the checkpoints from which the run resumed after it was stopped, in chronological order."""
        if not self.restarts.exists():
            return []
        stored = untrusted.check_fields(read_json(self.restarts), RESTARTS, self.restarts, "restore or delete the file")
        return list(stored["steps"])

    def rewind(self, step: int) -> None:
        """Drop all rows and records after a step, for the run to compute again; the rows up to it must exist."""
        kept, remedy = whole_lines(self.metrics)[:step], "start again with another --out"
        try:
            steps = [row["step"] for row in parse_rows(self.metrics, kept, untrusted.table(step=int))]
        except UsageError as problem:
            raise ResumeRefused(f"{problem}, or {remedy}") from problem
        if steps != list(range(1, step + 1)):
            raise ResumeRefused(f"{self.metrics} lacks rows of the {step} steps up to the checkpoint; {remedy}")
        if self.metrics.exists():
            files.replace(self.metrics, b"".join(kept))
        for path in self.rollouts.glob("step-*"):
            number = path.stem.removeprefix("step-")
            if number.isdigit() and int(number) > step:
                path.unlink()


def new_folder(out: str | Path | None, name: str) -> RunFolder:
    """A folder for a new run: `out`, which must be new or empty, or the next number under runs/, such as NAME-001."""
    if out is None:
        base = Path("runs")
        ends = [p.name.removeprefix(f"{name}-") for p in base.glob(f"{escape(name)}-*")]
        numbers = [int(end) for end in ends if re.fullmatch("[0-9]{3,9}", end)]
        return RunFolder(make_writable(base / f"{name}-{max(numbers, default=0) + 1:03d}"))
    path = Path(out)
    if path.is_dir() and any(p.name != "run.lock" for p in path.iterdir()):
        raise UsageError(f"output {path} exists and is not empty; nothing was changed: use --resume or another --out")
    return RunFolder(make_writable(path))


def make_writable(path: Path) -> Path:
    """Create a folder and make sure that it is writable."""
    if path.exists() and not path.is_dir():
        raise UsageError(f"output {path} is a file; expected a folder: give another --out")
    if len(path.parts) > DEEPEST:
        raise UsageError(f"output {short(str(path))} is {len(path.parts):,} folders deep; expected at most {DEEPEST}")
    try:
        files.make_folder(path)
        with tempfile.TemporaryFile(dir=path) as probe:
            os.fsync(probe.fileno())
    except OSError as problem:
        why = f"output {path} cannot be written ({problem.strerror})"
        raise EnvironmentLacks(f"{why}; choose a writable folder with --out") from problem
    return path


@contextmanager
def locked(folder: RunFolder) -> Iterator[None]:
    """Lock the folder for one process. The kernel releases it when the process dies, so a stale lock never blocks.

    While it is held, run.lock names the process, for the EnvironmentLacks of another one.
    """
    folder.refuse_links()
    make_writable(folder.path)  # a folder to resume in may have become read-only
    lock = FileLock(folder.path / "run.lock", mode=files.PRIVATE)
    try:
        lock.acquire(timeout=0)
    except Timeout as problem:
        owner = ""  # process 17 on host, as the holder of the lock wrote it
        with suppress(UsageError):
            owner_text = untrusted.read_text(folder.path / "run.lock", most=300)
            owner = f" ({owner_text})" if OWNER.fullmatch(owner_text) else ""
        # without locks in the file system the file itself is the lock, which a killed process leaves behind
        stale = "; if that has ended, delete run.lock" if isinstance(lock, SoftFileLock) else ""
        what = f"output {folder.path} is in use by another run{owner}"
        raise EnvironmentLacks(f"{what}; wait for it, or give another --out{stale}") from problem
    except OSError as problem:
        if problem.errno not in NO_LOCKS:
            raise
        what = f"output {folder.path} cannot be locked ({problem.strerror})"
        raise EnvironmentLacks(f"{what}; give an --out on another file system") from problem
    try:
        write_owner(folder, f"process {os.getpid()} on {platform.node()}")
        yield
    finally:
        write_owner(folder, "")
        lock.release()


def write_owner(folder: RunFolder, owner: str) -> None:
    """Write the owner's name into the lock file. It only informs people, so a full disk does not matter."""
    with suppress(OSError):
        handle = os.open(folder.path / "run.lock", os.O_WRONLY | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0))
        try:
            os.write(handle, owner.encode())
        finally:
            os.close(handle)


def whole_lines(path: Path) -> list[bytes]:
    """Lines that end in a newline; a last line that a kill cut short is left out. Empty if the file is missing."""
    return untrusted.read_lines(path, advice="restore the file") if os.path.lexists(path) else []


def parse_rows(path: Path, lines: list[bytes], wanted: type[BaseModel]) -> list[dict[str, Any]]:
    """The rows in some lines of metrics.jsonl."""
    named, advice = [(f"{path}, line {number}", line) for number, line in enumerate(lines, 1)], "restore the file"
    return [untrusted.check_fields(untrusted.parse_json(line, at, advice), wanted, at, advice) for at, line in named]


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file of the run."""
    advice = "this is not a run folder of pmdkit"
    return untrusted.check_fields(untrusted.read_json(path, untrusted.LARGE, advice), OBJECT, path, advice)


def flatten(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and values of nested tables."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def describe_machine() -> dict[str, Any]:
    """Versions and command line, for later readers of the run."""
    return {
        "command": redacted_command([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": {name: version_of(name) for name in PACKAGES},
    }


# Secrets: blanked in command lines and errors, refused in configurations. They are recognised by their name, by a
# password in a URL, or by the prefix of a well-known service. Other secrets are not found: keys belong in the
# environment, which is never written down.

BLANK = "[secret]"
SECRET = (
    re.compile(  # `api_key`, `--hf-token`, `vllm.options.password`; not `token_budget`, nor a tokenizer's `eos_token`
        r"(^|[._-])(key|api_?key|secret|passwd|password|pwd|credentials?|authorization"
        r"|(?<!eos.)(?<!bos.)(?<!pad.)(?<!unk.)(?<!end.)(?<!stop.)token)$",
        re.I,
    )
)
USERINFO = re.compile(r"\b([a-z][a-z0-9+.-]*://)[^\s/@'\"]+@", re.I)
QUERY = re.compile(r"([?&]([\w.-]+)=)[^\s&#'\"]+")
KNOWN = re.compile(
    r"\b((?:hf_|gh[pousr]_|github_pat_|glpat-|pypi-|npm_)[\w-]{20,}"  # hubs of models, code and packages
    r"|sk-(?=\S*\d)[\w-]{20,}|xox[abposr]-[\w-]{10,}|(?:AKIA|ASIA)[0-9A-Z]{16}|AIza[\w-]{35}"  # OpenAI, Slack, clouds
    r"|eyJ[\w-]{8,}\.[\w.-]{16,}|(?<=Bearer )(?=\S*\d)[\w.~+/=-]{16,})"
)


def redacted(value: Any, name: str = "") -> Any:
    """A text with its secrets blanked, or any JSON value; a text with the name of a secret is one as a whole."""
    if isinstance(value, dict):
        return {key: redacted(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(redacted(inner, name) for inner in value)
    if not isinstance(value, str):
        return value
    if value and SECRET.search(name):
        return BLANK
    value = USERINFO.sub(rf"\1{BLANK}@", value)
    value = QUERY.sub(lambda found: found[1] + BLANK if SECRET.search(found[2]) else found[0], value)
    return KNOWN.sub(BLANK, value)


def redacted_command(arguments: Sequence[str]) -> list[str]:
    """A command line with its secrets blanked: `--hf-token x`, `--set a.password=x`, and as in `redacted`."""
    shown: list[str] = []
    for before, argument in zip(("", *arguments), arguments, strict=False):
        name, equals, _ = argument.partition("=")
        secret = (
            before.startswith("-") and "=" not in before and SECRET.search(before) and not argument.startswith("--")
        )
        shown.append(BLANK if secret else f"{name}={BLANK}" if equals and SECRET.search(name) else redacted(argument))
    return shown


def refuse_secrets(config: dict[str, Any]) -> None:
    """Raise UsageError if a configuration holds a secret, which would be written down and copied with the folder."""
    for place in differences(config, redacted(config)):
        remedy = "leave it out, and pass it in an environment variable (VLLM_API_KEY, HF_TOKEN, WANDB_API_KEY)"
        raise UsageError(f"{place} looks like a password or a key, and a run saves its configuration; {remedy}")
