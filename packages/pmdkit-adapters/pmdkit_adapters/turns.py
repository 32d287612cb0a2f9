"""Multi-turn episodes: the policy writes, an environment answers, and the policy continues from there.

`Environment` is the whole protocol, `Turns.generate` the whole loop. The tokens of an environment are context: they are
in the row but off its mask, so the policy reads them, and no loss, log-probability or gauge counts them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Real
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from pmdkit.envs.math.problem import Problem
from pmdkit.errors import ComponentDied, UsageError, short, unknown
from pmdkit.fit import RunContext, StepResult, TrainerCallback
from pmdkit.llm.engines.base import Engine, Responses, Tokens
from pmdkit.llm.engines.distributed import GenerateRequest
from pmdkit.llm.prompts import PLACE, Encoder, split_at
from pmdkit.loop import Episode
from pmdkit.plugins import function_from_path, is_path
from pmdkit.process_group import SINGLE, ProcessGroup
from pmdkit.randomness import derive
from pmdkit.specs import LLMSpec
from pmdkit.specs.llm import RolloutTable
from pmdkit_adapters.calculator import CallingTeacher, calculator
from pmdkit_adapters.concurrent_calls import CallFailed, ConcurrentCalls

Message = dict[str, str]
ROLES = ("tool", "user", "system")
SHIPPED = {"calculator": calculator}
WANTED = f"a list of messages with role (one of {', '.join(ROLES)}) and content, a finite number, or None"


def check(spec: LLMSpec) -> None:
    """Refuse an environment that is neither shipped nor a file, and a warm start with one that no teacher knows."""
    name = str(spec.rollout.environment)
    if name not in SHIPPED and not is_path(name):
        raise UsageError(unknown("rollout.environment", name, SHIPPED) + ", or your own as my.py:fn")
    if spec.warm_start.pass_rate > 0 and name not in SHIPPED:
        raise UsageError(
            f"warm_start.pass_rate is set and rollout.environment is {name}; the starter's teacher knows only the "
            "calculator: set warm_start.pass_rate=0"
        )


def make(
    spec: LLMSpec,
    encoder: Encoder,
    ends: Sequence[int],
    problem: Callable[[int], Problem],
    process_group: ProcessGroup = SINGLE,
) -> "Turns":
    """The player of a recipe's episodes; `ends` are the tokens that end a turn."""
    name = str(spec.rollout.environment)
    own = "(messages, row), or a class of such a call"
    environment = SHIPPED[name] if name in SHIPPED else function_from_path(name, own)
    return Turns(environment, spec.rollout, encoder, ends, problem, process_group)


class Environment(Protocol):
    """Messages in, messages or a reward out.

    A function is called for many episodes at once, and its result depends on the arguments alone. Of a class each
    episode has an instance of its own, made without arguments, whose result may also depend on the earlier turns.
    """

    def __call__(
        self, messages: list[Message], row: Mapping[str, Any]
    ) -> list[Message] | tuple[Message, ...] | float | None:
        """Answer the policy's turn, which is the last of the messages.

        Args:
            messages: the conversation from the prompt on, each with role and content.
            row: the columns of the data, and `id`, `problem` and `answer`.

        Returns:
            Messages for the policy to answer; or, to end the episode, a number or None. A number is the reward, and 0.5
            or more passes; with None, [reward] grades the last turn.
        """


@dataclass
class Row:
    """An episode in progress.

    Attributes:
        seed: of its first turn; a later one is seeded by (seed, "turn", number).
        tokens, logp, mask: after the prompt, of policy and environment.
        turn: tokens of the policy's last turn.
        reward: the environment's, once it has given one.
        cut_off: the budget of tokens or turns ended it.
        failure: the environment's failure, which ended it.
        environment: the instance that plays this episode.
    """

    prompt: Tokens
    seed: int
    problem: Problem
    messages: list[Message]
    tokens: list[int] = field(default_factory=list)
    logp: list[float] = field(default_factory=list)
    mask: list[bool] = field(default_factory=list)
    turn: list[int] = field(default_factory=list)
    reward: float | None = None
    cut_off: bool = False
    failure: str = ""
    environment: Environment | None = None

    def append(self, messages: list[Message], tokens: list[int], logp: list[float] | None = None) -> None:
        """Append a turn of the policy, or, without log-probabilities, messages of the environment."""
        self.messages += messages
        self.tokens += tokens
        self.logp += [0.0] * len(tokens) if logp is None else logp
        self.mask += [logp is not None] * len(tokens)


@dataclass
class Turns:
    """Plays episodes through any engine.

    Attributes:
        environment: called in the main process only, once per finished turn; its reply is sent to all. Of a class each
            episode gets an instance.
        rollout: how many turns, and how the environment is called.
        encoder: from messages to tokens, for a tokenizer with a chat template.
        ends: tokens that end a turn.
        problem: returns a problem by its number.
        process_group: all processes play the same episodes.
    """

    environment: Environment | type[Environment]
    rollout: RolloutTable
    encoder: Encoder
    ends: Sequence[int]
    problem: Callable[[int], Problem]
    process_group: ProcessGroup = SINGLE
    frames: dict[tuple[str, ...], list[list[int]]] = field(default_factory=dict, init=False)
    callbacks: Sequence[TrainerCallback] = field(default_factory=lambda: [EnvironmentCallback()], init=False)

    def __post_init__(self) -> None:
        rollout, self.name = self.rollout, str(self.rollout.environment)
        if not self.encoder.chat:
            raise UsageError(
                f"rollout.environment is {self.name}, and prompts have no chat format; an environment's messages need "
                "one: take a model whose tokenizer has a chat template, and leave prompt.chat out"
            )
        # a failed call may have changed an instance: it is not called again
        retries = 0 if isinstance(self.environment, type) else rollout.environment_retries
        self.calls = ConcurrentCalls(rollout.environment_seconds, retries, rollout.environment_concurrency)

    def generate(self, engine: Engine, prompts: Tensor, request: GenerateRequest) -> tuple[Responses, list[Episode]]:
        """Play episodes of the problems with these numbers, prompt-major."""
        return self.play(engine, [self.problem(number) for number in prompts.tolist()], request)

    def play(
        self, engine: Engine, problems: Sequence[Problem], request: GenerateRequest
    ) -> tuple[Responses, list[Episode]]:
        """Play episodes of P problems, one per prompt, in the format of single-turn responses.

        A later turn reads exactly the tokens that were drawn, and is drawn for all rows together; `sampling.width`
        bounds each episode. What a row draws depends on its own tokens and seed alone, so a resumed run plays the same
        episodes.

        Returns:
            N rows whose masks have gaps where the environment spoke, and the episode of each.

        Raises:
            ComponentDied: the environment failed in too many episodes.
        """
        width, report = request.sampling.width, request.progress
        rows = [
            Row(request.prompts[n // request.group], seed, problem, self.encoder.messages(problem))
            for n, seed in enumerate(request.seeds.tolist())
            for problem in [problems[n // request.group]]
        ]
        active, call = rows, request
        for number in range(1, self.rollout.max_turns + 1):
            drawn = engine.generate(call.prompts, call.group, call.seeds, call.sampling, call.progress)
            lengths = drawn.mask.sum(1).tolist()
            parts = zip(active, lengths, drawn.tokens.tolist(), drawn.logp.tolist(), drawn.ended.tolist(), strict=True)
            for row, length, tokens, logp, ended in parts:
                # a turn that is longer than the row has room for is cut, as if it had been drawn so
                room = min(length, width - len(row.tokens))
                row.turn, row.cut_off = tokens[:room], not ended or length > room
                row.append([{"role": "assistant", "content": self.encoder.decode(row.turn)}], row.turn, logp[:room])
            active = self.reply([row for row in active if not row.cut_off], number, width)
            if not active:
                break
            # each row goes on after all its tokens; all may write as much as the one with most room
            written, over = sum(sum(row.mask) for row in rows), len(rows) - len(active)

            def later(tokens: int, ended: int, before: int = written, over: int = over) -> None:
                if report is not None:
                    report(before + tokens, over + ended)

            call = GenerateRequest(
                [[*row.prompt, *row.tokens] for row in active],
                1,
                np.array([derive(row.seed, "turn", number + 1) for row in active], dtype=np.uint64),
                replace(request.sampling, width=width - min(len(row.tokens) for row in active)),
                None if report is None else later,
            )
        longest = max(len(row.tokens) for row in rows)

        def table(parts: list[Any], filler: Any, dtype: torch.dtype) -> Tensor:
            return torch.tensor([[*part, *[filler] * (longest - len(part))] for part in parts], dtype=dtype)

        responses = Responses(
            tokens=table([row.tokens for row in rows], self.ends[0], torch.long),
            logp=table([row.logp for row in rows], 0.0, torch.float32),
            mask=table([row.mask for row in rows], False, torch.bool),
            ended=torch.tensor([not row.cut_off for row in rows]),
            version=drawn.version,
        )
        failures, most = [row.failure for row in rows if row.failure], self.rollout.environment_most_failed
        if len(failures) > max(1, most * len(rows)):
            raise ComponentDied(
                f"the environment failed in {len(failures)} of {len(rows)} episodes, above the share of {most:g} "
                f"(rollout.environment_most_failed); the first: {failures[0]}; repair it, or, if it is slow, raise "
                "rollout.environment_seconds or lower rollout.environment_concurrency, then go on with --resume"
            )
        return responses, [
            Episode(tuple(row.messages), tuple(row.turn), row.reward, row.cut_off, row.failure) for row in rows
        ]

    def reply(self, rows: list[Row], number: int, width: int) -> list[Row]:
        """Ask the environment about rows whose turn ended, and return the rows that continue."""
        found: list[tuple[str, Any]] = []
        if self.process_group.is_main_process:
            results = self.calls.run([partial(self.ask, row) for row in rows])
            found = [("failure", str(one)) if isinstance(one, CallFailed) else one for one in results]
        active = []
        for row, (kind, value) in zip(rows, self.process_group.broadcast_object(found), strict=True):
            if kind == "failure":
                row.failure = f"{self.name}, after turn {number} of problem '{row.problem.id}', {value}"
                continue
            if kind == "reward":
                row.reward = value
                continue
            tokens = self.encode(value)
            row.cut_off = number == self.rollout.max_turns or len(row.tokens) + len(tokens) >= width
            if not row.cut_off:
                row.append(value, tokens)
                active.append(row)
        return active

    def ask(self, row: Row) -> tuple[str, Any]:
        """("reward", a number or None) or ("messages", a list); an exception if the environment fails.

        It runs in a thread. What the environment gets are copies, so that it cannot change other episodes.
        """
        messages, problem = [dict(message) for message in row.messages], row.problem
        columns = deepcopy(dict(problem.columns))
        columns |= {"id": problem.id, "problem": problem.problem, "answer": problem.answer or None}
        if row.environment is None:
            row.environment = self.environment() if isinstance(self.environment, type) else self.environment
        return parse_reply(row.environment(messages, columns))

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """Ids of messages that follow a turn of the policy, which already ends with an end token, up to its next turn.

        Their contents are data, like a problem: none of their tokens is a control token.

        Raises:
            UsageError: as for `Encoder.encode`, or the chat template does not show such messages one by one.
        """
        first, *others = self.frame(tuple(message["role"] for message in messages))
        ids = first[1:] if first and first[0] in self.ends else list(first)
        for message, piece in zip(messages, others, strict=True):
            ids += [*self.encoder.data(message["content"]), *piece]
        return ids

    def frame(self, roles: tuple[str, ...]) -> list[list[int]]:
        """Ids between the policy's turn and the first message, between messages of these roles, and after the last."""
        if roles not in self.frames:
            marks = [f"{{message {n}}}" for n in range(len(roles) + 1)]
            marked = [{"role": role, "content": mark} for role, mark in zip(("assistant", *roles), marks, strict=True)]
            encoder = self.encoder
            text = encoder.render([*encoder.before_problem, {"role": "user", "content": PLACE}, *marked])
            self.frames[roles] = [encoder.ids(piece, split=False) for piece in split_at(text, marks)[1:]]
        return self.frames[roles]

    def examples(
        self, problems: Sequence[Problem], pass_rate: float, end: int, rng: np.random.Generator
    ) -> tuple[list[list[int]], list[list[bool]]]:
        """Tokens after the prompt, and their masks, of episodes that a teacher plays: one for each problem."""
        caller = CallingTeacher.for_pupil(pass_rate)
        played = [self.example(problem, partial(caller.respond, rng=rng), end) for problem in problems]
        return [tokens for tokens, _ in played], [mask for _, mask in played]

    def example(
        self, problem: Problem, respond: Callable[[list[Message]], str], end: int
    ) -> tuple[list[int], list[bool]]:
        """Tokens after the prompt, and their mask, of an episode that a teacher plays in the policy's place."""
        row = Row((), 0, problem, self.encoder.messages(problem))
        for number in range(1, self.rollout.max_turns + 1):
            text = [*self.encoder.data(respond(row.messages)), end]
            row.append([{"role": "assistant", "content": self.encoder.decode(text)}], text, [0.0] * len(text))
            if not self.reply([row], number, 2**31):
                break
        if row.failure:
            raise ComponentDied(row.failure)
        return row.tokens, row.mask


def parse_reply(found: Any) -> tuple[str, Any]:
    """("reward", a number or None) or ("messages", a list), from what an environment returned; else CallFailed."""
    if found is None:
        return "reward", None
    if isinstance(found, Real) and math.isfinite(found):
        return "reward", float(found)
    if isinstance(found, list | tuple) and found:
        messages = [dict(one) if isinstance(one, Mapping) else {} for one in found]
        if all(one.get("role") in ROLES and isinstance(one.get("content"), str) for one in messages):
            for one in messages:
                one["content"].encode()  # half of a surrogate pair has no tokens
            return "messages", [{"role": one["role"], "content": one["content"]} for one in messages]
    raise CallFailed(f"returned {short(found)}; expected {WANTED}")


class EnvironmentCallback(TrainerCallback):
    """Warns of each step in which an environment failed, with the first reason."""

    def on_step_end(self, run: RunContext, result: StepResult) -> None:
        """Warn of episodes of the step whose environment failed, with the first reason."""
        episodes = result.rollouts.episodes or ()
        reasons = [episode.failure for episode in episodes if episode.failure]
        if reasons and run.backend.process_group.is_main_process:
            run.display.warn(
                f"step {result.step}: {len(reasons)} of {len(episodes)} episodes have no reward, because the "
                f"environment failed; the first: {reasons[0]}"
            )
