"""Verified problems as the Task of a loop: which problems a step asks, how responses are graded and rewarded."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from pmdkit.config import RewardTable, RewardTerm
from pmdkit.distributed import ProcessGroup
from pmdkit.envs.math.problem import MathProblems, Problem
from pmdkit.errors import ComponentDied, UsageError
from pmdkit.llm.engines.base import Finished, Tokens
from pmdkit.loop import Episode, Rollouts
from pmdkit.plugins import require_trust
from pmdkit.randomness import derive, generator
from strict_answers import Grader, Item, Verdict, pool
from strict_answers.functions import RewardRow

if TYPE_CHECKING:
    from pmdkit.llm.rewards import RewardSum

SCALES = {"zero-one": (0.0, 1.0), "plus-minus-one": (-1.0, 1.0)}
Reader = Callable[[Tokens], str]
Rows = Callable[[Tokens, Problem, int], RewardRow]
Numbers = np.ndarray
MOST = 0.01
"Share of a batch that may lack a verdict; a single response never stops a run."


@dataclass(frozen=True)
class GradedStep:
    """The responses of a step as text, and the verifier's verdict on each."""

    items: list[Item]
    verdicts: list[Verdict]


class MathTask:
    """Problems in a shuffled order that is a function of (seed, step), and rewards from a grader.

    Args:
        problems: what may be asked.
        prompts: P, prompts per step.
        seed: of the order.
        grader: grades texts; the same text and answer get the same verdict after a restart.
        read: decodes response tokens into text, without control tokens.
        ends: ids that end a response; a response that does not end in one of them was cut off.
        scale: a key of SCALES, the rewards of wrong and right answers.
        most_unscored: share of responses without a verdict above which the run stops; one alone never stops it.
        rows: makes the named arguments of reward functions that ask for them, see `make_rows`.
        rewards: combines the verdicts and further parts into the reward.
    """

    def __init__(
        self,
        problems: MathProblems,
        prompts: int,
        seed: int,
        grader: "Grader | SharedGrader",
        read: Reader,
        ends: Sequence[int],
        scale: str = "zero-one",
        most_unscored: float = MOST,
        rows: "Rows | None" = None,
        rewards: "RewardSum | None" = None,
    ) -> None:
        self.problems = problems
        self.count = prompts
        self.seed = seed
        self.grader = grader
        self.read = read
        self.ends = frozenset(ends)
        self.low, self.high = SCALES[scale]
        self.most_unscored = most_unscored
        self.rows = rows
        self.rewards = rewards
        self.last: GradedStep | None = None
        self.sampling: dict[str, int] = {}  # what dynamic sampling did in the last step
        self.report: Finished | None = None

    def prompts(self, step: int) -> torch.Tensor:
        """[P] numbers of the problems that a step asks; steps count from 1."""
        numbers = torch.from_numpy(self.asked(step))
        self.report = self.grade_ahead(numbers)
        return numbers

    def asked(self, step: int) -> Numbers:
        """[P] the numbers of the problems of a step: each source gives its share, in its own order."""
        if not self.problems.sources:
            return epoch_sampler(self.problems.train, step, self.count, self.seed)
        counts = apportion([share for _, share, _ in self.problems.sources], self.count)
        return np.concatenate(
            [
                epoch_sampler(np.intersect1d(numbers, self.problems.train), step, count, derive(self.seed, "source", n))
                for n, (count, (_, _, numbers)) in enumerate(zip(counts, self.problems.sources, strict=True))
            ]
        )

    def grade_ahead(self, prompts: torch.Tensor) -> Finished:
        """The callback of an engine for each finished response to these prompts, so that it is graded at once.

        `reward` asks for the same verdicts later, so nothing depends on which was faster. A grader that cannot grade
        ahead is asked only then.
        """
        asked = [self.problems.problem(number) for number in prompts.tolist()]
        submit = getattr(self.grader, "submit", None)

        def finished(place: int, tokens: Tokens) -> None:
            if submit is not None:
                submit(lambda: self.item(tokens, asked[place], place))

        return finished

    def on_finished(self, place: int, tokens: Tokens) -> None:
        """The callback of `grade_ahead` for the prompts asked last; between two steps nothing is graded ahead."""
        if self.report is not None:
            self.report(place, tokens)

    def reward(self, rollouts: Rollouts) -> torch.Tensor:
        """[P, G] float64 reward of each response; NaN where the verifier reached no verdict."""
        self.report = None  # evaluations may use the same engine
        items = self.items(rollouts)
        verdicts = grade_episodes(self.grader, items, rollouts.episodes)
        self.last = GradedStep(items, verdicts)
        stop_if_ungraded(verdicts, self.most_unscored, "no update was made from them")
        values = [torch.nan if v.value is None else self.low + (self.high - self.low) * v.value for v in verdicts]
        reward = torch.tensor(values, dtype=torch.float64)
        if self.rewards is not None:
            reward = self.rewards.total(reward, items, rollouts.extent, rollouts.width)
        return reward.view(rollouts.mass.shape)

    def items(self, rollouts: Rollouts) -> list[Item]:
        """The items for the grader, row by row."""
        size = rollouts.mass.shape[1]
        asked = [self.problems.problem(number) for number in rollouts.prompts.tolist()]
        if rollouts.episodes is not None:
            episodes = enumerate(rollouts.episodes)
            return [episode_item(episode, asked[n // size], n // size, self.rows) for n, episode in episodes]
        lengths = rollouts.mask.sum(1).tolist()
        rows = [row[:length] for row, length in zip(rollouts.responses.tolist(), lengths, strict=True)]
        return [self.item(row, asked[n // size], n // size) for n, row in enumerate(rows)]

    def item(self, tokens: Tokens, asked: Problem, place: int = 0) -> Item:
        """The grader's item for one response to the prompt at this place of the step."""
        row = None if self.rows is None else self.rows(tokens, asked, place)
        return Item(self.read(tokens), asked.answer, tokens[-1] not in self.ends, asked.problem, row)


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
    return [next(graded) if reward is None else pool.own_verdict(reward) for reward in said]


def make_rows(messages: Callable[[str], Sequence[Mapping[str, str]]]) -> Rows:
    """A function from response tokens, problem and place of the prompt to the named arguments of reward functions.

    Args:
        messages: makes the messages of the prompt from the text of a problem.
    """

    def row(tokens: Tokens, asked: Problem, place: int) -> RewardRow:
        columns = json.dumps(dict(asked.columns), default=str)
        return RewardRow(json.dumps(list(messages(asked.problem))), tuple(tokens), columns, place)

    return row


def apportion(shares: Sequence[float], count: int) -> list[int]:
    """How many of `count` prompts each share gets, by largest remainders; the same in every step.

    Raises:
        UsageError: a share is less than one prompt.
    """
    exact = [share * count for share in shares]
    counts = [int(value) for value in exact]
    by_remainder = sorted(range(len(shares)), key=lambda n: counts[n] - exact[n])
    for n in by_remainder[: count - sum(counts)]:
        counts[n] += 1
    if not all(counts):
        raise UsageError(
            f"the shares of env.sources give {counts} of {count} prompts; expected at least one each: raise --prompts"
        )
    return counts


def epoch_sampler(numbers: Numbers, step: int, count: int, seed: int) -> Numbers:
    """[count] numbers that a step asks: from place (step - 1) count on in an endless sequence of shuffled epochs.

    Every epoch has every number once. A step that straddles two epochs has no number twice, unless count is larger
    than n.

    Args:
        numbers: [n] distinct numbers of problems.
        step: from 1.
        count: problems per step, >= 1.
        seed: of the shuffles; epoch e is drawn from (seed, "order", e).

    Raises:
        ValueError: no numbers, or a step or count below 1.
    """
    if numbers.ndim != 1 or len(numbers) == 0:
        raise ValueError(f"numbers has shape {list(numbers.shape)}; expected [n] with n >= 1, one per problem")
    if step < 1:
        raise ValueError(f"step is {step}; expected an integer >= 1, steps count from 1")
    if count < 1:
        raise ValueError(f"count is {count}; expected an integer >= 1, problems per step")
    size = len(numbers)
    first, end = (step - 1) * count, step * count
    epochs = range(first // size, (end - 1) // size + 1)
    row = np.concatenate([epoch_order(size, epoch, count, seed) for epoch in epochs])
    start = first - epochs.start * size
    return numbers[row[start : start + count]]


def epoch_order(size: int, epoch: int, count: int, seed: int) -> Numbers:
    """[size] places in the order of an epoch: a shuffle whose head repeats no problem of a step across its start."""
    if count > size:
        return shuffle(size, epoch, seed)
    begin = epoch
    # A new head moves nothing beyond place `count`, so the tail of a long epoch is a plain shuffle. Short epochs are
    # traced back to the last one that begins with a step; there are at most `count` of them.
    while begin * size % count and (size < 2 * count or begin == epoch):
        begin -= 1
    order = shuffle(size, begin, seed)
    for number in range(begin + 1, epoch + 1):
        before = number * size % count  # problems of the straddling step that the previous epoch gave
        order = with_fresh_head(shuffle(size, number, seed), order[size - before :], (count - before) % count)
    return order


def shuffle(size: int, epoch: int, seed: int) -> Numbers:
    """[size] the shuffle of an epoch."""
    return generator(seed, "order", epoch).permutation(size)


def with_fresh_head(order: Numbers, taken: Numbers, head: int) -> Numbers:
    """The order with `taken` kept out of its first `head` places, otherwise unchanged."""
    free = np.flatnonzero(~np.isin(order, taken))[:head]
    return np.concatenate([order[free], np.delete(order, free)])


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
    """The verifier pool of a [reward]; the file of a user's own function must be trusted by name."""
    require_trust(table.grade)
    first = table if isinstance(table, RewardTable) else RewardTable()
    return Grader(
        table.grade,
        boxed=first.boxed,
        workers=workers or table.workers,
        seconds=table.seconds,
        memory_mb=table.memory_mb,
        most_unscored=first.most_unscored,
        score_cut_off=score_cut_off,
    )


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
    def journal(self) -> pool.VerdictJournal | None:
        """The journal of the main process; None elsewhere."""
        return None if self.grader is None else self.grader.journal

    @journal.setter
    def journal(self, journal: pool.VerdictJournal | None) -> None:
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
