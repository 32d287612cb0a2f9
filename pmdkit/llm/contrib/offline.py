"""Training on existing responses: a log of rollouts as the stream of the loop.

PMD regresses log pi / pi_old on rewards, and pi_old may be whatever policy wrote the log. Nothing is sampled except for
evaluations. The stream comes first, then the readers of a log: pmdkit's own recordings, or JSONL from elsewhere.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch

from pmdkit import foreign, recording
from pmdkit.envs.math.problem import MathProblems, normalise_spaces
from pmdkit.errors import UsageError, short
from pmdkit.fit import RunContext, TrainerCallback
from pmdkit.llm.engines.base import Tokens
from pmdkit.llm.epochs import epoch_sampler
from pmdkit.llm.learner import CausalLearner
from pmdkit.llm.prompts import Encoder
from pmdkit.llm.rollouts import EngineRollouts
from pmdkit.llm.task import MathTask
from pmdkit.loop import Learner, Rollouts, Schedule, Stream, Task
from pmdkit.observe.run_folder import RunFolder
from pmdkit.randomness import derive

ADVICE = "docs/use/offline.md describes the format of a log"
OPTIONAL = {
    "policy": foreign.none_or(lambda value: foreign.is_text(value) or foreign.is_count(value)),
    "token_ids": foreign.none_or(lambda value: isinstance(value, list) and all(map(foreign.is_count, value))),
    "logprobs": foreign.none_or(lambda value: isinstance(value, list) and all(map(foreign.is_number, value))),
    "prompt_token_ids": foreign.none_or(lambda value: isinstance(value, list) and all(map(foreign.is_count, value))),
    "cut_off": foreign.none_or(lambda value: isinstance(value, bool)),
}


@dataclass(frozen=True)
class LoggedResponse:
    """A response from a log.

    Attributes:
        problem: id or text of its problem.
        policy: the policy that wrote it; responses of different policies never share a group.
        tokens: including the end token, unless it was cut off.
        logp: log-probability of each token under the policy that wrote it, nats; None where the log has none.
        prompt: tokens of the prompt that it answers; None where the log has none.
    """

    problem: str
    policy: str
    tokens: Tokens
    logp: Sequence[float] | None
    prompt: Tokens | None


@dataclass(frozen=True)
class RolloutLog:
    """Groups of logged responses.

    Attributes:
        name: for messages.
        problems: [M] the number of each group's problem.
        groups: M groups of equal size.
        left_out: how many responses are not used, by reason.
    """

    name: str
    problems: np.ndarray
    groups: Sequence[Sequence[LoggedResponse]]
    left_out: Mapping[str, int]

    @property
    def unscored(self) -> int:
        """Number of responses without log-probabilities; the reference policy stands in for the one that wrote them."""
        return sum(row.logp is None for group in self.groups for row in group)

    def rollouts(self, places: np.ndarray, seed: int, width: int, filler: int) -> EngineRollouts:
        """The groups at the given places as rollouts, with NaN for missing log-probabilities.

        Args:
            places: [P] indices into `groups`.
            seed: of the step.
            width: budget of a response, tokens.
            filler: padding token.
        """
        rows = [row for place in places for row in self.groups[place]]
        shape = len(rows), max(len(row.tokens) for row in rows)
        responses, mask = torch.full(shape, filler), torch.zeros(shape, dtype=torch.bool)
        logp = torch.zeros(shape, dtype=torch.float64)
        for n, row in enumerate(rows):
            length = len(row.tokens)
            responses[n, :length], mask[n, :length] = torch.tensor(row.tokens), True
            logp[n, :length] = torch.nan if row.logp is None else torch.tensor(row.logp, dtype=torch.float64)
        size = len(rows) // len(places)
        return EngineRollouts(
            prompts=torch.from_numpy(self.problems[places]),
            responses=responses,
            logp_old=logp,
            mask=mask,
            mass=torch.full((len(places), size), 1.0 / size, dtype=torch.float64),
            sampled=True,
            seed=seed,
            version=0,
            width=width,
        )


def logged_rollouts(log: RolloutLog) -> Stream:
    """A stream that reads every step from a log, in shuffled epochs of its groups.

    pi_old remains the policy that wrote the log, so the regression has one target throughout and `staleness` grows with
    every step. A resumed run reads the same groups. Missing log-probabilities are replaced by those of the reference
    policy, the one that the run began with; `scored_by_reference` counts the responses concerned.
    """

    def stream(learner: Learner, task: Task, schedule: Schedule, start: int) -> Iterator[tuple[int, Rollouts]]:
        assert isinstance(learner, CausalLearner)
        assert isinstance(task, MathTask)
        width, filler = learner.sampling.width, min(task.ends)
        for step in range(start + 1, schedule.steps + 1):
            began = perf_counter()
            places = epoch_sampler(np.arange(len(log.groups)), step, task.count, schedule.seed)
            rollouts = log.rollouts(places, derive(schedule.seed, "rollout", step), width, filler)
            rollouts = learner.with_reference(rollouts)
            missing = rollouts.logp_old.isnan()
            rollouts = replace(rollouts, measured={"scored_by_reference": int(missing.any(1).sum())})
            if rollouts.logp_ref is not None:
                rollouts = replace(rollouts, logp_old=torch.where(missing, rollouts.logp_ref, rollouts.logp_old))
            yield step, replace(rollouts, seconds=perf_counter() - began)

    return stream


class LogCallback(TrainerCallback):
    """Reports once what the log holds, what was left out of it, and whether pi_old is a stand-in."""

    def __init__(self, log: RolloutLog) -> None:
        self.log = log

    def on_init_end(self, run: RunContext) -> None:
        """Print one or two lines from the main process."""
        if not run.backend.process_group.is_main_process:
            return
        log, size = self.log, len(self.log.groups[0])
        left_out = "".join(f", {count:,} {reason}" for reason, count in log.left_out.items())
        run.display.note(f"{log.name}: {len(log.groups) * size:,} responses in groups of {size}{left_out}")
        if log.unscored:
            run.display.warn(
                f"{log.unscored:,} logged responses have no log-probabilities; the policy that the run begins with "
                "scores them, and the update is only right if it wrote them"
            )


def read_log(
    path: Path, problems: MathProblems, encoder: Encoder, ends: Sequence[int], size: int, width: int, vocabulary: int
) -> RolloutLog:
    """The responses of a run folder, a recorded step or a .jsonl file, in groups of `size`.

    Args:
        path: of the log.
        problems: of the recipe; responses to any that it does not train on are left out.
        encoder: makes the prompts that the responses must have answered.
        ends: tokens that end a response; the first is appended to a text that was not cut off.
        size: G. The responses of a policy to a problem are split into groups of G; any remainder is left out.
        width: budget in tokens; longer responses are left out.
        vocabulary: number of tokens that the model has.

    Raises:
        UsageError: the log cannot be read, answers other prompts, used another tokenizer, or has no whole group.
    """
    read = read_lines(path, encoder, ends[0]) if path.suffix == ".jsonl" else read_recordings(path)
    known: dict[str, int] = {}
    for number in problems.train.tolist():
        problem = problems.problem(number)
        known[problem.id] = known[normalise_spaces(problem.problem)] = number
    left_out: Counter[str] = Counter()
    answered: defaultdict[tuple[int, str], list[LoggedResponse]] = defaultdict(list)
    for row in read:
        number = known.get(row.problem, known.get(normalise_spaces(row.problem)))
        if number is None:
            left_out["left out: not a training problem of the recipe"] += 1
        elif not 0 < len(row.tokens) <= width:
            left_out[f"left out: not 1 to {width} tokens, see rollout.width"] += 1
        else:
            check_response(row, encoder.encode(problems.problem(number).problem), vocabulary, path)
            answered[number, row.policy].append(row)
    numbers, groups = [], []
    for (number, _), rows in answered.items():
        whole = len(rows) // size
        numbers += [number] * whole
        groups += [rows[n * size : (n + 1) * size] for n in range(whole)]
        left_out[f"left out: no whole group of {size}, see schedule.group"] += len(rows) - whole * size
    if not groups:
        told = ", ".join(f"{count:,} {reason}" for reason, count in (+left_out).items())
        raise UsageError(f"{path} has no group of {size} responses to a problem of the recipe ({told}); {ADVICE}")
    return RolloutLog(path.name, np.array(numbers, dtype=np.int64), groups, dict(+left_out))


def check_response(row: LoggedResponse, prompt: Tokens, vocabulary: int, path: Path) -> None:
    """Refuse tokens or a prompt that differ from the model's: under another prompt, pi_old is another policy."""
    if max(row.tokens) >= vocabulary:
        raise UsageError(
            f"{path} holds the token {max(row.tokens)}; expected ids below {vocabulary}, the model's vocabulary: the "
            "log was written with another tokenizer; give it as text"
        )
    if row.prompt is not None and list(row.prompt) != list(prompt):
        raise UsageError(
            f"{path} answers another prompt for {short(row.problem)} than the recipe's; give the [prompt] table and "
            "the tokenizer that the log was written with"
        )


def read_lines(path: Path, encoder: Encoder, end: int) -> Iterator[LoggedResponse]:
    """The responses of a .jsonl file: `problem` or `id`, and `response` or `token_ids` with `logprobs`."""
    for number, line in enumerate(foreign.read_bytes(path, foreign.LARGE, ADVICE).splitlines(), 1):
        where = f"{path}, line {number}"
        row = foreign.check_fields(foreign.parse_json(line, where, ADVICE), {}, where, ADVICE)
        foreign.check_fields({**dict.fromkeys(OPTIONAL), **row}, OPTIONAL, where, ADVICE)
        problem, tokens, logp = row.get("id", row.get("problem")), row.get("token_ids"), row.get("logprobs")
        if not isinstance(problem, str):
            raise UsageError(f"{where} has neither an id nor a problem that is text; {ADVICE}")
        if logp is not None and (tokens is None or len(logp) != len(tokens)):
            count = "no" if tokens is None else len(tokens)
            raise UsageError(f"{where} has {len(logp)} logprobs for {count} token_ids; expected one for each")
        if tokens is None:
            foreign.check_fields(row, {"response": foreign.is_text}, where, ADVICE)
            tokens = [*encoder.data(row["response"]), *([] if row.get("cut_off") else [end])]
        yield LoggedResponse(problem, str(row.get("policy", "")), tokens, logp, row.get("prompt_token_ids"))


def read_recordings(path: Path) -> Iterator[LoggedResponse]:
    """The responses of a recorded step, or of all recorded steps of a run; each step counts as a separate policy."""
    if path.is_dir():
        steps: list[int | None] = [*recording.recorded_steps(RunFolder(path))]
        parts = [recording.open_step(path, step) for step in steps or [None]]  # if none, open_step says what to do
    elif path.suffix == ".safetensors":
        parts = [recording.decode(foreign.read_bytes(path, foreign.LARGE, ADVICE), str(path))]
    else:
        raise UsageError(
            f"the log {path} is neither a run folder nor a recorded step-N.safetensors nor a .jsonl file; {ADVICE}"
        )
    for part in parts:
        with foreign.shaped(path, "a recording of a language model", ADVICE):
            yield from recorded_responses(part)


def recorded_responses(part: recording.Recording) -> list[LoggedResponse]:
    """The responses of one step, prompt-major."""
    if part.get("episode") is not None:
        raise UsageError(
            f"step {part.about['step']} of the log has episodes with an environment; logged responses have one turn: "
            "record a run without rollout.environment"
        )
    ids: list[Any] = part.about["problems"]
    prompts = part["prompt_tokens"].split(part["prompt_length"].tolist())
    size = len(part.mask) // len(ids)
    found = []
    for n, (tokens, logp, mask) in enumerate(zip(part["responses"], part["logp_old"], part.mask, strict=True)):
        owner = n // size
        policy = f"step {part.about['step']}, prompt {owner}"
        found.append(
            LoggedResponse(ids[owner], policy, tokens[mask].tolist(), logp[mask].tolist(), prompts[owner].tolist())
        )
    return found
