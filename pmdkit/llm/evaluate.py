"""Evaluate a language model: draw, grade and record k responses to each problem."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter

from pmdkit import untrusted
from pmdkit.envs.math import make_math
from pmdkit.envs.math.problem import MathProblems, Problem
from pmdkit.errors import UsageError
from pmdkit.llm import grading
from pmdkit.llm.companions import EpisodePlayer
from pmdkit.llm.engines.base import Engine, Sampling, Tokens
from pmdkit.llm.engines.distributed import DistributedEngine, GenerateRequest
from pmdkit.llm.grading import SharedGrader
from pmdkit.observe import files, run_folder
from pmdkit.randomness import derive, generator
from pmdkit.stats import GradedDraws
from strict_answers import Grader, Verdict
from strict_answers.normalization import strip_decoration
from strict_answers.numerals import parse_number

ROWS = 2048  # most responses of an engine between two writes
TOKENS = (
    2**20
)  # of theirs in all; about four times as many as are generated at a time, so that few rows wait for the last


@dataclass(frozen=True)
class Answered:
    """One response to one problem, as a line of the record."""

    id: str
    k: int
    response: str
    ended: bool
    tokens: int
    verdict: Verdict


@dataclass(frozen=True)
class Evaluation:
    """A fixed set of problems and the sampling of its responses.

    Attributes:
        name: of the data, for display and file names.
        problems: [P], the same at every call.
        k: responses to each problem.
        seed: of the draws, the same at every call.
        most_unscored: share of a turn without a verdict above which the turn is discarded and the evaluation stops.
        rows: what named reward functions can read about a response.
    """

    name: str
    problems: Sequence[Problem]
    encode: Callable[[Problem], Tokens]
    read: grading.Reader
    grader: Grader | SharedGrader
    k: int
    sampling: Sampling
    seed: int
    most_unscored: float = 0.5  # a run has its own share, reward.most_unscored
    rows: grading.Rows | None = None
    turns: EpisodePlayer | None = None

    def __call__(
        self, engine: Engine, record: Path | None = None, progress: Callable[[int, int, int], None] | None = None
    ) -> list[Answered]:
        """Every response, problem by problem.

        Args:
            engine: with the weights to evaluate.
            record: JSONL file of finished responses, which is continued: one line each, a problem's k together.
            progress: called with responses done, responses in all, and tokens so far.
        """
        done = read_record(record, self.k) if record is not None else {}
        total, tokens = len(self.problems) * self.k, 0
        # The boundaries of turns do not depend on progress: the composition of a batch changes log-probabilities by
        # rounding, and an interrupted evaluation should give the responses of an uninterrupted one.
        engines = engine.count() if isinstance(engine, DistributedEngine) else 1
        together = max(1, engines * min(ROWS, TOKENS // self.sampling.width) // self.k)  # drawn, graded and written
        for start in range(0, len(self.problems), together):
            some = [problem for problem in self.problems[start : start + together] if problem.id not in done]
            if not some:
                continue
            before = len(done) * self.k

            def report(written: int, ended: int, before: int = before, so_far: int = tokens) -> None:
                if progress is not None:
                    progress(before + ended, total, so_far + written)

            answers = self.ask(engine, some, report)
            tokens += sum(answer.tokens for answer in answers)
            if record is not None:
                files.make_folder(record.parent)
                files.append(record, encode_answers(answers))
            for answer in answers:
                done.setdefault(answer.id, []).append(answer)
        return [answer for problem in self.problems for answer in done[problem.id]]

    def ask(self, engine: Engine, problems: Sequence[Problem], report: Callable[[int, int], None]) -> list[Answered]:
        """k responses to each of some problems; of an episode the last turn, with the tokens of all turns."""
        seeds = np.array([derive(self.seed, problem.id, k) for problem in problems for k in range(self.k)], np.uint64)
        encoded = [self.encode(problem) for problem in problems]
        episodes = None
        if self.turns is not None:
            request = GenerateRequest(encoded, self.k, seeds, self.sampling, report)
            drawn, episodes = self.turns.play(engine, problems, request)
        else:
            drawn = engine.generate(encoded, self.k, seeds, self.sampling, report)
        responses = [row[on].tolist() for row, on in zip(drawn.tokens, drawn.mask, strict=True)]
        items = grading.make_items(problems, responses, drawn.ended.tolist(), episodes, self.read, self.rows)
        verdicts = grading.grade_episodes(self.grader, items, episodes)
        grading.stop_if_ungraded(verdicts, self.most_unscored, "they are not counted and were not saved", episodes)
        lengths = drawn.mask.sum(1).tolist()
        return [
            Answered(problems[n // self.k].id, n % self.k, item.response, not item.truncated, lengths[n], verdicts[n])
            for n, item in enumerate(items)
        ]


def held_out_problems(problems: MathProblems, most: int | None, seed: int) -> list[Problem]:
    """The held-out problems of a run's own data, or `most` of them, chosen by the seed."""
    numbers = problems.held_out
    if not len(numbers):
        raise UsageError(
            f"evaluation.data is 'held-out' and {problems.name} holds none out; "
            "set env.held_out, or evaluation.data to aime24, aime25 or a file"
        )
    chosen = generator(seed, "held-out").permutation(len(numbers))[:most]
    return [problems.problem(int(numbers[i])) for i in sorted(chosen)]


def other_problems(data: str, most: int | None, gold: bool) -> tuple[str, list[Problem]]:
    """Name and problems of a shipped set, or of a file; `gold` as for `make_math`."""
    other = make_math({"kind": data} if data in ("aime24", "aime25") else {"kind": "file", "path": data}, gold)
    numbers = other.held_out if len(other.held_out) else other.train
    return other.name, [other.problem(int(number)) for number in numbers[:most]]


def graded_draws(answers: Sequence[Answered], k: int) -> GradedDraws:
    """[P, k] correctness and answer classes, for the statistics. A response without a verdict counts as wrong.

    Classes are integers, equal where two responses to a problem give the same answer; no answer counts as one too.
    """
    right = np.array([float(answer.verdict.correct is True) for answer in answers]).reshape(-1, k)
    texts = [answer_text(answer) for answer in answers]
    # the class of an answer is the place of the first equal one among the k of its problem
    classes = [texts[n - n % k : n - n % k + k].index(text) for n, text in enumerate(texts)]
    return GradedDraws(right, np.array(classes, dtype=np.int64).reshape(-1, k))


def answer_text(answer: Answered) -> str:
    """An answer as majority votes compare it: numbers by value, other text without spaces.

    A user's own grader extracts nothing from a response: all of it is the answer.
    """
    verdict = answer.verdict
    text = answer.response if verdict.path == "own" else verdict.extracted
    if text is None:
        return ""
    value = parse_number(strip_decoration(text))
    return "".join(text.split()) if value is None else str(value)


def encode_answers(answers: Iterable[Answered]) -> bytes:
    """The lines of a record."""
    return b"".join(json.dumps(asdict(answer)).encode() + b"\n" for answer in answers)


def read_record(record: Path, k: int) -> dict[str, list[Answered]]:
    """The complete problems of a record, with their answers; the rest is removed from the file."""
    done: dict[str, list[Answered]] = {}
    for number, text in enumerate(run_folder.whole_lines(record), 1):
        where = f"{record}, line {number}"
        with untrusted.shaped(where, "an evaluated response", "delete the file, and its responses are drawn again"):
            answer = TypeAdapter(Answered).validate_json(text, strict=True)
        done.setdefault(answer.id, []).append(answer)
    whole = {name: answers for name, answers in done.items() if [a.k for a in answers] == list(range(k))}
    if record.exists():
        files.replace(record, encode_answers(answer for answers in whole.values() for answer in answers))
    return whole
