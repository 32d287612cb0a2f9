"""The warm start: supervised learning on right answers until the policy passes a chosen share of the problems."""

from collections.abc import Callable

import torch

from pmdkit.config import WarmStartTable
from pmdkit.envs.tokens.problem import TokenProblem, sample_prompts
from pmdkit.errors import PmdkitError
from pmdkit.randomness import generator
from pmdkit.toy.model import Transformer
from pmdkit.toy.sampling import score


def warm_start(
    model: Transformer,
    problem: TokenProblem,
    options: WarmStartTable,
    seed: int,
    pass_rate: Callable[[], float],
    note: Callable[[str], None],
) -> None:
    """Raise the model's pass rate to the target, in place.

    Args:
        model: trained with AdamW on the likelihood of right answers.
        problem: gives prompts that are not held out, and answers.
        options: target, limit, batch and learning rate.
        seed: of the prompts and of the teacher's choices.
        pass_rate: measures the model on the evaluation problems.
        note: called with a line of progress.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    reached, step = pass_rate(), 0
    while reached < options.pass_rate:
        if step >= options.max_steps:
            raise PmdkitError(
                f"the warm start ended at pass rate {reached:.3f}, below {options.pass_rate}, after {step} supervised "
                "steps; raise warm_start.max_steps or warm_start.lr, or ask for less with warm_start.pass_rate"
            )
        for index in range(step, min(step + options.look, options.max_steps)):
            rng = generator(seed, "warm start", index)
            prompts = sample_prompts(problem, rng, options.batch)
            answers, mask = problem.answers(prompts, rng)
            tokens = torch.from_numpy(mask)
            loss = -score(model, torch.from_numpy(prompts), torch.from_numpy(answers), tokens).sum() / tokens.sum()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        step = index + 1
        reached = pass_rate()
        if step % (10 * options.look) == 0 and reached < options.pass_rate:
            note(f"warm start: pass rate {reached:.3f} after {step} supervised steps")
    note(f"warm start: pass rate {reached:.3f} after {step} supervised steps")
