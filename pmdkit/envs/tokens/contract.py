"""Whether the parts of a token problem fit together, said in one sentence before any training. The rules stay here."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pmdkit.envs.problem import Array, Indices
from pmdkit.randomness import generator

if TYPE_CHECKING:
    from pmdkit.envs.tokens.problem import TokenProblem

PROBES = 16  # prompts that the teacher must get right: few, since a search behind an answer may be slow


def check_problem(problem: "TokenProblem") -> None:
    """Raise a ValueError where vocabulary, lengths, prompts, teacher and judge of a problem contradict each other."""
    check_sizes(problem)
    rng = generator(0, "contract")
    prompts = problem.sample(rng, PROBES)
    check_prompts(problem, prompts, "sample", PROBES)
    if problem.grid is not None:
        check_prompts(problem, problem.grid, "all_prompts", len(problem.grid))
    for prompt in prompts:
        check_teacher(problem, prompt, problem.answer(prompt, rng))


def check_sizes(problem: "TokenProblem") -> None:
    """The vocabulary holds `<eos>` and something to choose from; lengths are positive."""
    words, name = problem.vocabulary, problem.name
    if len(set(words)) < len(words):
        twice = next(word for word in words if words.count(word) > 1)
        raise ValueError(f"the vocabulary of {name} has '{twice}' twice; expected tokens that all differ")
    if "<eos>" not in words:
        raise ValueError(f"the vocabulary of {name} has no '<eos>'; add it, a response ends with it")
    if len(words) < 3:
        raise ValueError(f"the vocabulary of {name} has {len(words)} tokens; expected at least 2 beside '<eos>'")
    if problem.prompt_length < 1:
        raise ValueError(f"prompt_length of {name} is {problem.prompt_length}; expected an integer >= 1")
    least = 2 if problem.needs_eos else 1
    if problem.width < least:
        raise ValueError(
            f"width of {name} is {problem.width}; expected at least {least}: room for an answer"
            + (" and '<eos>'" if problem.needs_eos else "")
        )


def check_prompts(problem: "TokenProblem", prompts: Indices, method: str, count: int) -> None:
    """Prompts are [count, L] ids of the vocabulary."""
    shape, wanted = list(np.shape(prompts)), [count, problem.prompt_length]
    if shape != wanted or prompts.dtype != np.int64 or count < 1:
        kind = getattr(prompts, "dtype", type(prompts).__name__)
        raise ValueError(f"{method} of {problem.name} gave {shape} {kind}; expected {wanted} int64, at least one row")
    if prompts.min() < 0 or prompts.max() >= len(problem.vocabulary):
        raise ValueError(
            f"{method} of {problem.name} gave ids from {prompts.min()} to {prompts.max()}; "
            f"expected ids of its vocabulary, 0 to {len(problem.vocabulary) - 1}"
        )


def check_teacher(problem: "TokenProblem", prompt: Indices, answer: list[int]) -> None:
    """The teacher's answer fits the width, ends as it must, and gets reward 1."""
    said = f"answer of {problem.name} to '{problem.text(prompt)}' is '{problem.text(answer)}'"
    if len(answer) > problem.width:
        raise ValueError(f"{said}, {len(answer)} tokens; expected at most its width, {problem.width}: raise the width")
    if problem.needs_eos and (not answer or answer[-1] != problem.eos):
        raise ValueError(f"{said} without '<eos>'; expected '<eos>' as its last token")
    row = np.array([answer], dtype=np.int64)
    if graded(problem, prompt[None], row, np.ones_like(row, dtype=np.bool_))[0, 0] != 1:
        raise ValueError(f"{said}, and check says that is wrong; expected the teacher to be right")


def graded(problem: "TokenProblem", prompts: Indices, responses: Indices, mask: NDArray[np.bool_]) -> Array:
    """What `grade` gives, [P, G] float64, once it is numbers: a judge of one's own may return anything."""
    rewards = problem.grade(prompts, responses, mask)
    wanted, number = [len(prompts), len(responses) // len(prompts)], isinstance(rewards, np.ndarray)
    if not number or rewards.dtype.kind not in "bif" or list(rewards.shape) != wanted:
        given = f"{list(rewards.shape)} {rewards.dtype}" if number else type(rewards).__name__
        raise ValueError(f"grade of {problem.name} gave {given}; expected {wanted} numbers, a reward per response")
    if not np.isfinite(rewards).all():
        raise ValueError(
            f"grade of {problem.name} gave a reward that is NaN or infinite; expected 0 for a wrong response"
        )
    return rewards.astype(np.float64)
