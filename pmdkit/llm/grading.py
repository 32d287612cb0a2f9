"""Grading responses: the verifier's items, the error for too few verdicts, and verdicts of several ranks."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from pmdkit.envs.math.problem import Problem
from pmdkit.envs.math_answers import Grader, Item, RewardRow, Verdict, VerdictJournal, own_verdict
from pmdkit.envs.reward_functions import make_function_grader, takes_gold
from pmdkit.errors import ComponentDied
from pmdkit.llm.tokens import Tokens
from pmdkit.loop import Episode
from pmdkit.process_group import SINGLE, ProcessGroup
from pmdkit.specs.llm import RewardTable, RewardTerm

Reader = Callable[[Tokens], str]
Rows = Callable[[Tokens, Problem, int], RewardRow]
MOST = 0.01
"Share of a batch that may lack a verdict; a single response never stops a run."


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


def make_items(
    asked: Sequence[Problem],
    responses: Sequence[Tokens],
    ended: Sequence[bool],
    episodes: Sequence[Episode] | None,
    read: Reader,
    rows: Rows | None,
) -> list[Item]:
    """The grader's items for N = P * G responses to P problems.

    Of an episode the last turn is the response, and everything before that is the prompt.
    """
    size, items = len(responses) // len(asked), []
    for n, tokens in enumerate(responses):
        problem, place = asked[n // size], n // size
        if episodes is None:
            row = None if rows is None else rows(tokens, problem, place)
            items.append(Item(read(tokens), problem.answer, not ended[n], problem.problem, row))
            continue
        episode = episodes[n]
        row = None if rows is None else rows(episode.tokens, problem, place)
        if row is not None:
            row = replace(row, messages=json.dumps(episode.messages[:-1]))
        items.append(Item(episode.messages[-1]["content"], problem.answer, episode.cut_off, problem.problem, row))
    return items


def grade_episodes(
    grader: Grader | SharedGrader, items: Sequence[Item], episodes: Sequence[Episode] | None
) -> list[Verdict]:
    """One verdict per item: the environment's reward, none where the environment failed, else the grader's verdict."""
    if episodes is None:
        return grader.grade(items)
    pairs = zip(items, episodes, strict=True)
    asked = [item for item, episode in pairs if episode.reward is None and not episode.failure]
    graded = iter(grader.grade(asked))
    verdicts = []
    for episode in episodes:
        if episode.failure:
            verdicts.append(own_verdict(None, episode.failure))
        else:
            verdicts.append(next(graded) if episode.reward is None else own_verdict(episode.reward))
    return verdicts


def make_rows(messages: Callable[[Problem], Sequence[Mapping[str, str]]]) -> Rows:
    """A function that makes the RewardRow of a response, from its tokens, its problem and the number of its prompt.

    `messages` makes the messages of the prompt from a problem.
    """

    def row(tokens: Tokens, asked: Problem, place: int) -> RewardRow:
        columns = json.dumps(dict(asked.columns), default=str)
        return RewardRow(json.dumps(list(messages(asked))), tuple(tokens), columns, place)

    return row


def stop_if_ungraded(
    verdicts: Sequence[Verdict], most: float, kept: str, episodes: Sequence[Episode] | None = None
) -> None:
    """Raise ComponentDied if more than a share has no verdict; `kept` is its message's clause on the fate of the batch.

    Episodes whose environment failed do not count: the verifier was not asked about them.
    """
    failed = {n for n, episode in enumerate(episodes or ()) if episode.failure}
    unscored = [verdict for n, verdict in enumerate(verdicts) if not verdict.scored and n not in failed]
    if len(unscored) > max(1, most * len(verdicts)):
        raise ComponentDied(
            f"the verifier reached no verdict on {len(unscored)} of {len(verdicts)} responses "
            f"({unscored[0].reason}), above the share of {most:.3g} (reward.most_unscored in a run); {kept}: fix it, "
            "then go on with --resume"
        )


def needs_gold(table: RewardTable) -> bool:
    """Whether one of the [[reward]] tables needs the gold answers of the data."""
    return any(takes_gold(term.grade) for term in (table, *table.others))


def make_grader(
    table: RewardTerm, score_cut_off: bool = False, process_group: ProcessGroup = SINGLE
) -> Grader | SharedGrader:
    """The verifier pool of a [reward]; the main process grades for all. `score_cut_off` is for functions only."""
    first, grader = table if isinstance(table, RewardTable) else RewardTable(), None
    pool: dict[str, Any] = {"workers": table.workers, "seconds": table.seconds, "memory_mb": table.memory_mb}
    pool["most_unscored"] = first.most_unscored
    if process_group.is_main_process and table.grade == "math":
        grader = Grader(boxed=first.boxed, **pool)
    elif process_group.is_main_process:
        grader = make_function_grader(table.grade, score_cut_off=score_cut_off, **pool)
    return grader if grader is not None and process_group.size == 1 else SharedGrader(grader, process_group)
