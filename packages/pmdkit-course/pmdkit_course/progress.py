"""What a learner has solved, in one small file of this account. It is sent nowhere, and no check fails because of it.

The file is $XDG_STATE_HOME/pmdkit/progress.json, by default ~/.local/state/pmdkit/progress.json. Notebooks and the
command line share it, wherever they are started.
"""

import contextlib
import datetime
import json
import os
from pathlib import Path
from typing import Any

from pmdkit_course.exercises import AnswerVerdict


def path() -> Path:
    """Path of the file, whether it exists or not."""
    state = os.environ.get("XDG_STATE_HOME", "")
    folder = Path(state) if Path(state).is_absolute() else Path.home() / ".local" / "state"
    return folder / "pmdkit" / "progress.json"


def read() -> dict[str, dict[str, Any]]:
    """Tries and the day of the first right answer, by exercise; empty if the file cannot be read."""
    try:
        entries = json.loads(path().read_bytes())["exercises"]
        return {
            str(key): {"tries": int(entry["tries"]), "solved": entry["solved"] and str(entry["solved"])}
            for key, entry in entries.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError):  # RuntimeError: no home folder
        return {}


def solved() -> set[str]:
    """Ids of the exercises that were answered correctly at least once."""
    return {key for key, entry in read().items() if entry["solved"]}


def note(verdict: AnswerVerdict) -> None:
    """Count a try, unless the answer is not filled in. If the file cannot be written, nothing happens."""
    if verdict.untouched or not verdict.exercise:
        return
    with contextlib.suppress(OSError, RuntimeError):
        place = path()
        place.parent.mkdir(parents=True, exist_ok=True)
        entries = read()
        entry = entries.setdefault(verdict.exercise, {"tries": 0, "solved": None})
        entry["tries"] += 1
        if verdict.right:
            entry["solved"] = entry["solved"] or datetime.date.today().isoformat()
        # replaced as a whole: of two checks at the same moment one try may go uncounted, but the file stays readable
        new = place.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps({"version": 1, "exercises": dict(sorted(entries.items()))}))
        new.replace(place)
