"""One verifier for several processes: the main one judges and writes verdicts down, the others are told."""

from collections.abc import Sequence
from dataclasses import asdict

from pmdkit.envs.math_answers import Grader, Item, Verdict
from pmdkit.envs.math_answers.journal import Journal
from pmdkit.team import Team


class SharedGrader:
    """What MathTask and Evaluation need of a Grader, in every process with the same verdicts.

    A verdict can depend on the load of a machine, where an answer runs over its deadline; so one process decides.

    Args:
        grader: of the main process, None elsewhere.
        team: every process calls `grade` with the same items.
    """

    def __init__(self, grader: Grader | None, team: Team) -> None:
        self.grader = grader
        self.team = team

    @property
    def journal(self) -> Journal | None:
        """Of the main process."""
        return None if self.grader is None else self.grader.journal

    @journal.setter
    def journal(self, journal: Journal | None) -> None:
        if self.grader is not None:
            self.grader.journal = journal

    def grade(self, items: Sequence[Item]) -> list[Verdict]:
        """One verdict per item, in their order."""
        verdicts = None if self.grader is None else [asdict(verdict) for verdict in self.grader.grade(items)]
        return [Verdict(**verdict) for verdict in self.team.tell(verdicts)]

    def probe(self) -> Verdict:
        """Ask a worker whether 34 is 34."""
        return Verdict(**self.team.tell(None if self.grader is None else asdict(self.grader.probe())))

    def close(self) -> None:
        """End the workers."""
        if self.grader is not None:
            self.grader.close()
