"""Finds a recorded step in a run folder, and says which there are where it is not there."""

from pathlib import Path

from pmdkit.errors import UsageError
from pmdkit.observe.folder import RunFolder
from pmdkit.recording.format import Recording, decode


def recorded(folder: RunFolder) -> list[int]:
    """Steps that have a recording, in order."""
    names = (path.stem.removeprefix("step-") for path in folder.rollouts.glob("step-*.safetensors"))
    return sorted(int(name) for name in names if name.isdigit())


def open_step(run: Path, step: int | None = None) -> Recording:
    """The recording of a step, the newest one without a number.

    Raises:
        UsageError: no run, no recording at all, none of this step, or a file that is damaged or of another version.
    """
    folder = RunFolder(run)
    if not folder.started:
        raise UsageError(f"{run} is no run folder of pmdkit (it has no config.json); give the folder of a run")
    steps = recorded(folder)
    if not steps:
        raise UsageError(f"{run} has no recorded step; run it with --record, or --set run.record=10 for every tenth")
    if step is None:
        step = steps[-1]
    if step not in steps:
        raise UsageError(f"step {step} of {run} was not recorded; recorded are {spans(steps)}: choose one with --step")
    path = folder.rollouts / f"step-{step}.safetensors"
    recording = decode(path.read_bytes(), str(path))
    if recording.about["step"] != step:
        raise UsageError(f"{path} is a recording of step {recording.about['step']}; it was renamed: put it back")
    return recording


def spans(steps: list[int]) -> str:
    """Step numbers in few words: `1 to 5, 8, 10 to 50 by 10`."""
    words, start = [], 0
    while start < len(steps):
        stop = start + 1
        stride = steps[stop] - steps[start] if stop < len(steps) else 0
        while stop < len(steps) and steps[stop] - steps[stop - 1] == stride:
            stop += 1
        if stop - start > 2:
            by = "" if stride == 1 else f" by {stride}"
            words.append(f"{steps[start]} to {steps[stop - 1]}{by}")
        else:
            words.append(str(steps[start]))
            stop = start + 1
        start = stop
    return ", ".join(words)
