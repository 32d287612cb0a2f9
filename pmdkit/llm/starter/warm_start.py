"""Phase 0 of a run with a starter model: supervised steps until it passes a chosen share of the problems.

The teacher answers sums step by step or guesses at once, and is right too seldom on purpose.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from pmdkit.config import WarmStartTable
from pmdkit.envs.math.problem import MathProblems
from pmdkit.errors import Diverged, PmdkitError, UsageError
from pmdkit.llm import logprobs, packing, weights
from pmdkit.observe.checkpoint import load_newest, save_step
from pmdkit.randomness import generator

RAMP = 20  # steps up to the full learning rate: Adam's first steps are signs, too large for random weights
BETAS = (0.9, 0.98)  # a short memory for squares, since the gradients shrink tenfold within 100 steps
SAVE = 200  # supervised steps between two checkpoints, some ten seconds on one core
NOTED = 4  # measurements between two notes
MARGIN = 1.5  # the teacher is right this much more often than its pupil should be, so that the pupil gets there
STEPS = 0.7  # a pupil that never reasons, or always does, would have nothing to discover
LOWEST, HIGHEST = 0.2, 0.5  # what this teacher can aim at; a pupil that should do worse stops earlier
GUESSED = 0.2  # seldom enough that reinforcing right answers reinforces reasoning


def warm_start(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    problems: MathProblems,
    encode: Callable[[str], Sequence[int]],
    options: WarmStartTable,
    seed: int,
    pass_rate: Callable[[], float],
    note: Callable[[str], None],
    folder: Path | None = None,
) -> float:
    """Raise the model's pass rate to the target, in place.

    Interrupted, and called again with a fresh model and the same arguments, it goes on from its last checkpoint and
    ends on the same bits.

    Args:
        model: trained with AdamW on the likelihood of the teacher's responses; switched to packed attention.
        tokenizer: turns responses into tokens; its end token ends them.
        problems: only their training half is asked.
        encode: from the text of a problem to the tokens of its prompt.
        options: target, limit, batch and learning rate.
        seed: of the problems asked and of the teacher's responses.
        pass_rate: measures the model on held-out problems.
        note: called with how far it is.
        folder: of the checkpoints; without it nothing is saved.

    Returns:
        The pass rate that was measured last, at least the target.

    Raises:
        PmdkitError: the target was not reached in max_steps.
    """
    if options.pass_rate <= 0:
        return pass_rate()
    packing.use_packing(model)
    teacher = Teacher.for_pupil(options.pass_rate, len(operands(problems.problem(int(problems.train[0])).problem)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, betas=BETAS, weight_decay=0.0)
    step = take_up(folder, model, optimizer, note)
    reached = 0.0 if step else pass_rate()  # a checkpoint is only written below the target
    while reached < options.pass_rate:
        if step >= options.max_steps:
            raise PmdkitError(
                f"the warm start ended at pass rate {reached:.3f}, below {options.pass_rate}, after {step} supervised "
                "steps; raise warm_start.max_steps, or ask for less with warm_start.pass_rate"
            )
        for turn in range(step, min(step + options.look, options.max_steps)):
            rng = generator(seed, "warm start", turn)
            texts = [problems.problem(int(n)).problem for n in rng.choice(problems.train, options.batch)]
            responses = [[*tokenizer(teacher.respond(t, rng)).input_ids, tokenizer.eos_token_id] for t in texts]
            loss = -logprobs.response_logp(model, [encode(text) for text in texts], responses).logp.mean()
            if not torch.isfinite(loss):
                raise Diverged(f"the warm start's loss is {loss.item()} at step {turn + 1}; lower warm_start.lr")
            optimizer.param_groups[0]["lr"] = options.lr * min((turn + 1) / RAMP, 1 - turn / options.max_steps)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        before, step = step, turn + 1
        reached = pass_rate()
        if step % (NOTED * options.look) == 0 or reached >= options.pass_rate:
            note(f"warm start: pass rate {reached:.3f} after {step} supervised steps")
        if folder is not None and reached < options.pass_rate and step // SAVE > before // SAVE:
            state = {"model": weights.named_weights(model), "optimizer": optimizer.state_dict()}
            save_step(folder, step, state, keep=1)
    return reached


def take_up(
    folder: Path | None, model: PreTrainedModel, optimizer: torch.optim.Optimizer, note: Callable[[str], None]
) -> int:
    """Restore the newest checkpoint, if there is one. Returns its step."""
    if folder is None:
        return 0
    folder.mkdir(parents=True, exist_ok=True)
    step, state, warnings = load_newest(folder)
    for warning in warnings:
        note(warning)
    if step:
        weights.load_weights(model, state["model"])
        optimizer.load_state_dict(state["optimizer"])
        note(f"warm start: going on after {step} supervised steps")
    return step


@dataclass(frozen=True)
class Teacher:
    """Answers a sum in the format of the verifier, with mistakes.

    A share `steps` of its responses adds number by number, and every addition is wrong with probability `slip`; the
    rest guesses at once and is right with probability `guessed`. A wrong number is 1 to 3 too large.

    Attributes:
        slip: of one addition.
        steps: share of responses that reason.
        guessed: share of right guesses.
    """

    slip: float
    steps: float = STEPS
    guessed: float = GUESSED

    @classmethod
    def for_pupil(cls, pass_rate: float, numbers: int) -> "Teacher":
        """The teacher of a pupil that should pass a given share of sums of so many numbers; one of LOWEST or more."""
        check_pass_rate(pass_rate)
        reasoned = (MARGIN * max(pass_rate, LOWEST) - (1 - STEPS) * GUESSED) / STEPS
        return cls(slip=1 - reasoned ** (1 / (numbers - 1)))

    def share_right(self, numbers: int) -> float:
        """The share of right responses to sums of so many numbers."""
        return self.steps * (1 - self.slip) ** (numbers - 1) + (1 - self.steps) * self.guessed

    def respond(self, problem: str, rng: np.random.Generator) -> str:
        """One response, its last line such as "Answer: 17"."""
        first, *others = operands(problem)
        if rng.random() >= self.steps:
            return f"Answer: {first + sum(others) + (0 if rng.random() < self.guessed else off(rng))}"
        total, additions = first, []
        for operand in others:
            result = total + operand + (off(rng) if rng.random() < self.slip else 0)
            additions.append(f"{total}+{operand}={result}")
            total = result
        return f"{', '.join(additions)}\nAnswer: {total}"


def off(rng: np.random.Generator) -> int:
    """A mistake: 1, 2 or 3 too many. Never too few: two mistakes would cancel, and wrong steps be rewarded."""
    return int(rng.integers(1, 4))


def operands(problem: str) -> list[int]:
    """The numbers in the text of a sum, in their order."""
    found = [int(digits) for digits in re.findall(r"\d+", problem)]
    if len(found) < 2:
        raise UsageError(
            f"the problem is {problem!r}; the starter's teacher adds the numbers of a story and expects two or more: "
            'take env.kind = "arithmetic"'
        )
    return found


def check_pass_rate(pass_rate: float) -> None:
    """Refuse a target that no teacher leads to."""
    if not 0 < pass_rate <= HIGHEST:
        raise UsageError(
            f"pass_rate of the warm start is {pass_rate}; expected a number above 0 and up to {HIGHEST}: the starter's "
            "teacher makes mistakes, so that something is left to learn"
        )
