"""Phase 0 of a run with a starter model: supervised steps until it passes a chosen share of the problems."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from pmdkit.envs.math.problem import MathProblems, Problem
from pmdkit.errors import Diverged, PmdkitError
from pmdkit.llm import logprobs, packing, weights
from pmdkit.llm.companions import EpisodePlayer
from pmdkit.llm.starter.vocabulary import Teacher, operands
from pmdkit.observe.checkpoint import Checkpoints
from pmdkit.randomness import generator
from pmdkit.specs.toy import WarmStartTable

RAMP = 20  # steps up to the full learning rate: Adam's first steps are signs, too large for random weights
BETAS = (0.9, 0.98)  # a short memory for squares, since the gradients shrink tenfold within 100 steps
SAVE = 200  # supervised steps between two checkpoints, some ten seconds on one core
NOTED = 4  # measurements between two notes


def warm_start(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    problems: MathProblems,
    encode: Callable[[Problem], Sequence[int]],
    options: WarmStartTable,
    seed: int,
    pass_rate: Callable[[], float],
    note: Callable[[str], None],
    folder: Path | None = None,
    turns: EpisodePlayer | None = None,
) -> float:
    """Raise the model's pass rate to the target, in place.

    If it is interrupted and called again with a fresh model and the same arguments, it continues from its last
    checkpoint and ends with the same bits.

    Args:
        model: trained with AdamW on the likelihood of the teacher's responses; switched to packed attention.
        problems: only the training problems are used; `encode` gives the tokens of a prompt.
        pass_rate: measures the model on held-out problems; what it said last, at least the target, is returned.
        note: called with progress messages.
        folder: of the checkpoints; without it nothing is saved.
        turns: of a run with an environment, with which a teacher plays episodes.

    Raises:
        PmdkitError: the target was not reached in max_steps.
    """
    if options.pass_rate <= 0:
        return pass_rate()
    packing.use_packing(model)
    teacher = Teacher.for_pupil(options.pass_rate, len(operands(problems.problem(int(problems.train[0])).problem)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, betas=BETAS, weight_decay=0.0)
    step = 0
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        step, state, warnings = Checkpoints(folder).load_newest()
        for warning in warnings:
            note(warning)
        if step:
            weights.load_weights(model, state["model"])
            optimizer.load_state_dict(state["optimizer"])
            note(f"warm start: continuing after {step} supervised steps")
    reached = 0.0 if step else pass_rate()  # a checkpoint is only written below the target
    while reached < options.pass_rate:
        if step >= options.max_steps:
            raise PmdkitError(
                f"the warm start ended at pass rate {reached:.3f}, below {options.pass_rate}, after {step} supervised "
                "steps; raise warm_start.max_steps, or ask for less with warm_start.pass_rate"
            )
        for turn in range(step, min(step + options.look, options.max_steps)):
            rng = generator(seed, "warm start", turn)
            asked = [problems.problem(int(n)) for n in rng.choice(problems.train, options.batch)]
            prompts = [encode(problem) for problem in asked]
            scored = None
            if turns is None:
                texts = [teacher.respond(problem.problem, rng) for problem in asked]
                responses = [[*tokenizer(text).input_ids, tokenizer.eos_token_id] for text in texts]
            else:  # the environment's tokens are context only
                responses, masks = turns.examples(asked, options.pass_rate, tokenizer.eos_token_id, rng)
                longest = max(map(len, responses))
                mask = torch.tensor([[*mask, *[False] * (longest - len(mask))] for mask in masks])
                scored = logprobs.scored_tokens(mask, responses)
            loss = -logprobs.response_logp(model, prompts, responses, scored=scored).mean()
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
            Checkpoints(folder).save(step, state, keep=1)
    return reached
