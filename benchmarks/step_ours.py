"""A whole step of the language-model tier, in the loop that `pmdkit train` runs, without writing to disk.

Kept because step_side.py runs it as our side of a whole step.
"""

import time
from copy import deepcopy
from typing import Any

import torch
from harness.limits import gemm_rate
from random_models import EOS, ForcedEngine, Lengths
from step_task import CUT, GROUP, LR, VOCABULARY, WIDTH, lengths_of, model, prompts_of, right
from torch import Tensor

from pmdkit.llm.async_rollouts import RolloutQueue, async_rollouts
from pmdkit.llm.engines.distributed import DistributedEngine
from pmdkit.llm.in_flight import NewestPolicy, age_columns
from pmdkit.llm.learner import CausalLearner
from pmdkit.llm.model import prepare_model
from pmdkit.llm.policy import CausalPolicy
from pmdkit.loop import Rollouts, Schedule, inline, run
from pmdkit.objectives import PMDMean
from pmdkit.specs.llm import RolloutTable, UpdateTable
from pmdkit.specs.spec import ScheduleTable


class Engine(ForcedEngine):
    """Generates one step per call. Sums the seconds it takes on both clocks; CPU seconds are those of its thread."""

    calls = 0
    wall = cpu = 0.0

    def next_lengths(self, rows: int) -> Lengths:
        """Lengths of the next step's responses."""
        self.calls += 1
        return lengths_of(self.calls, rows)

    def generate(self, *given: Any, **options: Any) -> Any:
        """Generate, and add the seconds taken."""
        wall, cpu = time.perf_counter(), time.thread_time()
        drawn = super().generate(*given, **options)
        self.wall += time.perf_counter() - wall
        self.cpu += time.thread_time() - cpu
        return drawn


class AnyTask:
    """P prompts per step, numbered consecutively across steps."""

    def __init__(self, count: int) -> None:
        self.count = count

    def prompts(self, step: int) -> Tensor:
        """[P] numbers of a step's prompts."""
        return torch.arange((step - 1) * self.count, step * self.count)

    def tokens(self, number: int) -> list[int]:
        """The prompt of that number."""
        return prompts_of(number // self.count + 1, self.count)[number % self.count].tolist()

    def reward(self, rollouts: Rollouts) -> Tensor:
        """[P, G] rewards."""
        earned = [right(row) for row in rollouts.responses.tolist()]
        return torch.tensor(earned, dtype=torch.float64).view(rollouts.mass.shape)


def train(prompts: int, ministeps: int, steps: int, lag: int = 0, in_flight: bool = False) -> dict[str, float]:
    """Mean seconds of a step after the first, with its rollouts and all updates, and of its parts.

    `age` is the mean over tokens and those steps, in steps, of the weights that drew a token.
    """
    # an engine switches the attention of its own model only, and with a lag that is a copy
    task, trained = AnyTask(prompts), prepare_model(model())
    engine = Engine(deepcopy(trained).requires_grad_(False) if lag else trained, EOS)
    schedule, update = ScheduleTable(lr=LR, optimizer="adamw"), UpdateTable()
    supervised = DistributedEngine(engine, in_flight=in_flight) if lag else engine
    queue = RolloutQueue(supervised, NewestPolicy() if in_flight else None) if lag else None
    policy = CausalPolicy(trained, token_budget=update.token_budget)
    table = RolloutTable(width=CUT, lag=lag, in_flight=in_flight)
    learner = CausalLearner(policy, None, task.tokens, supervised, table, schedule, update, queue=queue)
    stream = async_rollouts(lag) if lag else inline
    scored, score = 0, policy.logp

    def counted(prompts: Any, responses: Any, *given: Any, **options: Any) -> Tensor:
        nonlocal scored
        scored += len(responses)
        return score(prompts, responses, *given, **options)

    policy.logp = counted
    ends: list[tuple[float, ...]] = []
    ages: list[float] = []
    updates = [0.0, 0.0]
    plain = learner.update

    def timed(*given: Any) -> dict[str, float]:
        wall, cpu = time.perf_counter(), time.thread_time()
        report = plain(*given)
        updates[0] += time.perf_counter() - wall
        updates[1] += time.thread_time() - cpu
        return report

    learner.update = timed

    def note(step: int, _: Any, rollouts: Any, *__: Any) -> None:
        ages.append(age_columns(rollouts, step, 1)["staleness"] if in_flight else step - 1 - rollouts.version)
        ends.append((time.perf_counter(), time.process_time(), engine.wall, engine.cpu, *updates))

    run(PMDMean(), learner, task, Schedule(steps + 1, GROUP, ministeps), [note], stream)
    (queue or learner.engine).close()
    names = ("wall", "cpu", "rollout_wall", "rollout_cpu", "update_wall", "update_cpu")
    spent = {name: (end - begin) / steps for name, begin, end in zip(names, ends[0], ends[-1], strict=True)}
    spent["age"] = sum(ages[1:]) / steps
    return spent | {"scored_again": scored / (steps + 1), "gemm": gemm_rate(2048, WIDTH, VOCABULARY)}
