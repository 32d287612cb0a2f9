"""Verdicts over ranks: one process decides, all get the same verdicts."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from pmdkit.envs.math_answers import Grader, Item, Verdict, VerdictJournal
from pmdkit.process_group import ProcessGroup


@dataclass
class SharedGrader:
    """A Grader for MathTask and Evaluation that gives every process the same verdicts.

    A verdict can depend on the load of a machine when an answer exceeds its deadline, so the main process, which alone
    has a grader, decides. Every process calls `grade` with the same items.
    """

    grader: Grader | None
    process_group: ProcessGroup

    @property
    def journal(self) -> VerdictJournal | None:
        """The journal of the main process; None elsewhere."""
        return None if self.grader is None else self.grader.journal

    @journal.setter
    def journal(self, journal: VerdictJournal | None) -> None:
        if self.grader is not None:
            self.grader.journal = journal

    def grade(self, items: Sequence[Item]) -> list[Verdict]:
        """One verdict per item, in order."""
        verdicts = None if self.grader is None else [asdict(verdict) for verdict in self.grader.grade(items)]
        return [Verdict(**verdict) for verdict in self.process_group.broadcast_object(verdicts)]

    def close(self) -> None:
        """End the workers."""
        if self.grader is not None:
            self.grader.close()
