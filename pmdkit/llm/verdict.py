"""Why a run of several processes ended: one exit code and one sentence, those of the cause."""

import signal
import socket
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from pmdkit.llm.desk import Word

DIED, STOPPED = 7, 75
GO_ON = "the last checkpoint is intact: go on with --resume"


@dataclass(frozen=True)
class Ended:
    """How a process that failed ended: its exit code, minus the signal where one killed it."""

    exitcode: int
    pid: int


def verdict(
    ends: Mapping[int, Ended], words: Sequence[Word], hung: Container[int], timeout: float, stopped: bool
) -> tuple[int, str]:
    """The exit code of a run some of whose processes failed at about the same time, and what a person is told.

    Who failed by itself comes before who was killed, then who did not answer, then who left on request; one that
    noticed the loss of another is a consequence. SIGTERM is how torchrun ends those who remain.

    Args:
        ends: by rank, of those that failed.
        words: what they left, the first to leave first.
        hung: process ids that were killed for not answering.
        timeout: seconds one waited for another.
        stopped: the run was asked to stop.
    """
    for word in words:
        if word.broken and not word.consequence and word.pid not in hung:
            assert word.code is not None
            return word.code, word.sentence
    killed = {rank: end for rank, end in ends.items() if end.exitcode < 0 and end.pid not in hung}
    for rank, end in sorted(killed.items(), key=lambda item: item[1].exitcode == -signal.SIGTERM):
        name = signal.Signals(-end.exitcode).name
        return DIED, f"{rank_name(rank)} (process {end.pid}) was killed by {name}; {GO_ON}"
    for word in words:
        if word.pid in hung:
            return DIED, (
                f"{rank_name(word.rank)} (process {word.pid}) did not answer, the others waited as long as "
                f"parallel.timeout allows ({timeout:g} s), and it was ended; {GO_ON}"
            )
    if stopped and words and all(word.code == 0 for word in words):
        return 0, ""  # asked after the last step
    for word in words:
        if word.code == STOPPED:
            return STOPPED, word.sentence
    if stopped:
        return STOPPED, "stopped on request; run again with --resume to go on"
    for word in words:
        if word.broken:
            return DIED, word.sentence
    rank, end = next(iter(ends.items()))
    return max(end.exitcode, 1), f"{rank_name(rank)} (process {end.pid}) ended with exit code {end.exitcode}"


def rank_name(rank: int) -> str:
    """A process and its machine."""
    return f"rank {rank} on {socket.gethostname()}"
