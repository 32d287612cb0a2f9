"""Verdicts over ranks: one process decides, all get the same verdicts."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict

import torch

from pmdkit.distributed import ProcessGroup
from strict_answers import Grader, Item, Verdict
from strict_answers.journal import VerdictJournal


class SharedGrader:
    """A Grader for MathTask and Evaluation that gives every process the same verdicts.

    A verdict can depend on the load of a machine when an answer exceeds its deadline, so one process decides.

    Args:
        grader: of the main process, None elsewhere.
        process_group: every process calls `grade` with the same items.
        ahead: of a process other than the main one, to grade what its own engine finishes. Its verdicts go to the main
            process, which alone has a journal and decides what has no verdict yet.
        spread: whether processes other than the main one grade ahead; the same in all of them.
    """

    def __init__(
        self,
        grader: Grader | None,
        process_group: ProcessGroup,
        ahead: Grader | None = None,
        spread: bool = False,
    ) -> None:
        self.grader = grader
        self.process_group = process_group
        self.ahead = ahead
        self.spread = spread

    @property
    def journal(self) -> VerdictJournal | None:
        """The journal of the main process; None elsewhere."""
        return None if self.grader is None else self.grader.journal

    @journal.setter
    def journal(self, journal: VerdictJournal | None) -> None:
        if self.grader is not None:
            self.grader.journal = journal

    def submit(self, item: Callable[[], Item]) -> None:
        """Have this process grade an item ahead; `grade` is asked for it later."""
        judge = self.grader or self.ahead
        if judge is not None:
            judge.submit(item)

    def bring_judged(self) -> None:
        """Send the verdicts that every process reached ahead to the main one."""
        mine = {} if self.ahead is None else self.ahead.take_judged()
        text = json.dumps({key: asdict(verdict) for key, verdict in mine.items()}).encode()
        parts = self.process_group.gather(torch.frombuffer(bytearray(text), dtype=torch.uint8))
        if self.grader is not None:
            for part in parts:
                rows = json.loads(bytes(part.tolist()))
                self.grader.judged |= {key: Verdict(**row) for key, row in rows.items()}

    def grade(self, items: Sequence[Item]) -> list[Verdict]:
        """One verdict per item, in order."""
        if self.spread:
            self.bring_judged()
        verdicts = None if self.grader is None else [asdict(verdict) for verdict in self.grader.grade(items)]
        return [Verdict(**verdict) for verdict in self.process_group.broadcast_object(verdicts)]

    def probe(self) -> Verdict:
        """Ask a worker whether 34 is 34."""
        return Verdict(
            **self.process_group.broadcast_object(None if self.grader is None else asdict(self.grader.probe()))
        )

    def close(self) -> None:
        """End the workers."""
        for one in (self.grader, self.ahead):
            if one is not None:
                one.close()
