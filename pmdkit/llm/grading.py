"""Grading responses: what the verifier is asked about each, and when a batch has too few verdicts to go on."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pmdkit.envs import math_answers
from pmdkit.envs.math.problem import Problem
from pmdkit.envs.math_answers import Grader, Item, RewardRow, Verdict, own_verdict
from pmdkit.errors import ComponentDied
from pmdkit.llm.engines.base import Tokens
from pmdkit.llm.verdicts_over_ranks import SharedGrader
from pmdkit.loop import Episode
from pmdkit.specs.llm import RewardTable, RewardTerm

Reader = Callable[[Tokens], str]
Rows = Callable[[Tokens, Problem, int], RewardRow]
MOST = 0.01
"Share of a batch that may lack a verdict; a single response never stops a run."


def episode_item(episode: Episode, asked: Problem, place: int, rows: Rows | None) -> Item:
    """The grader's item for an episode: its last turn is the response, and everything before that is the prompt."""
    row = None if rows is None else rows(episode.tokens, asked, place)
    if row is not None:
        row = replace(row, messages=json.dumps(episode.messages[:-1]))
    return Item(episode.messages[-1]["content"], asked.answer, episode.cut_off, asked.problem, row)


def grade_episodes(
    grader: "Grader | SharedGrader", items: Sequence[Item], episodes: Sequence[Episode] | None
) -> list[Verdict]:
    """One verdict per item: the reward that the environment gave its episode, else the grader's verdict."""
    if episodes is None:
        return grader.grade(items)
    said = [episode.reward for episode in episodes]
    graded = iter(grader.grade([item for item, reward in zip(items, said, strict=True) if reward is None]))
    return [next(graded) if reward is None else own_verdict(reward) for reward in said]


def make_rows(messages: Callable[[str], Sequence[Mapping[str, str]]]) -> Rows:
    """A function from response tokens, problem and place of the prompt to the named arguments of reward functions.

    Args:
        messages: makes the messages of the prompt from the text of a problem.
    """

    def row(tokens: Tokens, asked: Problem, place: int) -> RewardRow:
        columns = json.dumps(dict(asked.columns), default=str)
        return RewardRow(json.dumps(list(messages(asked.problem))), tuple(tokens), columns, place)

    return row


def stop_if_ungraded(verdicts: Sequence[Verdict], most: float, kept: str) -> None:
    """Raise if too many responses have no verdict.

    Args:
        verdicts: of a batch.
        most: share that may lack one.
        kept: what was not done with them, for the message.

    Raises:
        ComponentDied: too many have none; the message has the reason of the first.
    """
    unscored = [verdict for verdict in verdicts if not verdict.scored]
    if len(unscored) > max(1, most * len(verdicts)):
        raise ComponentDied(
            f"the verifier reached no verdict on {len(unscored)} of {len(verdicts)} responses "
            f"({unscored[0].reason}), above the share of {most:.3g} (reward.most_unscored in a run); {kept}: fix it, "
            "then go on with --resume"
        )


def make_grader(table: RewardTerm, workers: int | None = None, score_cut_off: bool = False) -> Grader:
    """The verifier pool of a [reward]."""
    first = table if isinstance(table, RewardTable) else RewardTable()
    return math_answers.make_grader(
        table.grade,
        boxed=first.boxed,
        workers=workers or table.workers,
        seconds=table.seconds,
        memory_mb=table.memory_mb,
        most_unscored=first.most_unscored,
        score_cut_off=score_cut_off,
    )
