"""Write each run of a race to a journal when it ends, so that a stopped race continues where it was."""

import json
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pmdkit import untrusted
from pmdkit.child_processes import sigterm_interrupts
from pmdkit.errors import Stopped, UsageError
from pmdkit.launchers import Launcher
from pmdkit.observe import files, run_folder
from pmdkit.remote_calls import Call
from pmdkit.sweeps import run

JOURNAL = "runs.jsonl"
ADVICE = "restore the file, or give another --out"
OUTCOME = untrusted.table(key=str, auc=untrusted.Number, final=untrusted.Number, drop=untrusted.Number)
Outcome = dict[str, Any]


class KeyedRun(Protocol):
    """A run with a key that identifies it in the journal."""

    @property
    def key(self) -> str:
        """The key of the run: equal for the same task, method, setting and seed."""


R = TypeVar("R", bound=KeyedRun)


@contextmanager
def journal(out: Path, resume: bool) -> Iterator[dict[str, Outcome]]:
    """Lock the folder of a race and yield its finished runs by key; `resume` allows a folder with runs."""
    if out.exists() and any(path.name != "run.lock" for path in out.iterdir()) and not resume:
        raise UsageError(f"output {out} exists and is not empty; nothing was changed: use --resume or another --out")
    run_folder.make_writable(out)
    with run_folder.locked(run_folder.RunFolder(out)):
        try:
            with sigterm_interrupts():
                yield read_journal(out / JOURNAL)
        except KeyboardInterrupt:
            raise Stopped(f"the race in {out} was stopped; run again with --resume to go on") from None


def read_journal(path: Path) -> dict[str, Outcome]:
    """Finished runs by key. A last line cut off by a killed process is dropped, also from the file."""
    if not path.exists():
        return {}
    lines = untrusted.read_lines(path, advice=ADVICE)
    if sum(map(len, lines)) < path.stat().st_size:
        files.replace(path, b"".join(lines))
    done = {}
    for number, line in enumerate(lines, 1):
        where = f"{path}, line {number}"
        row = untrusted.check_fields(untrusted.parse_json(line, where, ADVICE), OUTCOME, where, ADVICE)
        done[str(row.pop("key"))] = row
    return done


def make_runs(
    wanted: Sequence[R],
    call_of: Callable[[R], Call],
    done: dict[str, Outcome],
    out: Path,
    launcher: Launcher,
    log: Callable[[str], None],
    until: float = math.inf,
) -> None:
    """Make the runs that are not done, and record each as it ends; stop when time.monotonic() has passed `until`."""
    missing = {call.name: (call, each) for each in wanted if each.key not in done for call in [call_of(each)]}
    calls = [call for call, _ in missing.values()]
    # closed on every exit path, which ends its processes
    with open(out / JOURNAL, "ab") as file, closing(launcher.run(calls, out / run.LAUNCH)) as results:
        for count, result in enumerate(results, 1):
            (_, each), found = missing[result.call.name], result.result()
            done[each.key] = found
            file.write(json.dumps({"key": each.key, **found}).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
            log(f"{count} of {len(missing)}: {each}, area {found['auc']:.3f}")
            if time.monotonic() > until and count < len(missing):
                raise Stopped(
                    f"this part of {out} has used up its time after {count} of its {len(missing)} runs; run again with "
                    "--resume to go on"
                )
