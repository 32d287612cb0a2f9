"""Policy mirror descent on a language model with every step in the open: a program to read and to change.

    python llm/train.py                               # the starter, on a CPU, without a download
    python llm/train.py starter --steps 20 --seed 1

`pmdkit llm RECIPE` takes the same steps with the same functions and gets the same losses. It does more, left out here:

1. It has several processes (DDP, FSDP2), adapters (LoRA), a reference policy, and rollouts ahead of the updates.
2. It writes a run folder: metrics, responses, checkpoints, from which it resumes to the same bits.
3. It compares the engine's log-probabilities with the trainer's in every step, and may correct or replace them.
4. It makes several passes over a batch, and has schedules of the learning rate.

What stays is the step: rollout, rewards, credit, log-probabilities, loss, backward, optimizer, weights to the engine.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from pmdkit.llm import backend
from pmdkit.llm.engines.base import Sampling, Tokens
from pmdkit.llm.fused_loss import fused_total
from pmdkit.llm.logprobs import response_logp, to_rows
from pmdkit.llm.micro_batches import token_budget_batches
from pmdkit.llm.optimizer import make_optimizer
from pmdkit.llm.policy import ForwardRoot
from pmdkit.llm.prompts import encode_numbers
from pmdkit.llm.rollouts import make_rollouts, response_tokens, row_seeds
from pmdkit.llm.starter.warm_start import warm_start
from pmdkit.llm.weights import named_weights
from pmdkit.loop import graded, ministeps
from pmdkit.objectives import Batch, Objective, credit, total, traits
from pmdkit.objectives.credit import RoundingCheck
from pmdkit.randomness import derive
from pmdkit.resolve import resolve


def main(given: Sequence[str] | None = None) -> list[float]:
    """Train, print a line per step, and return the losses."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipe", nargs="?", default="starter", help="a name in llm/recipes, or a .toml file")
    parser.add_argument("--steps", type=int, default=None, help="rollout batches in all")
    parser.add_argument("--seed", type=int, default=None, help="of weights, prompts and draws")
    options = parser.parse_args(given)
    changes = {"schedule.steps": options.steps, "run.seed": options.seed}
    spec, objective = resolve(
        "llm", options.recipe, {key: value for key, value in changes.items() if value is not None}
    )
    if traits(objective).uses_reference or spec.lora.rank or spec.rollout.lag or spec.schedule.passes > 1:
        parser.error(f"{options.recipe} needs what this program leaves out; run `pmdkit llm {options.recipe}`")
    schedule, seed, size = spec.schedule, spec.run.seed, spec.schedule.group
    assert size is not None
    torch.set_num_threads(spec.run.threads)

    # Problems, model, engine, verifier. Each line builds one part; replace any of them with your own.
    problems = backend.load_problems(spec)
    model, tokenizer = backend.make_model(spec)  # float32, switched to packed attention
    encoder, problems = backend.make_encoder(spec, tokenizer, problems)
    encode = encode_numbers(problems, encoder)  # number of a problem -> tokens of its prompt
    engine = backend.make_engine(spec, model, encoder, problems)  # generates responses under the weights it was given
    verifier = backend.make_verifier(spec)
    task = backend.make_task(spec, model, encoder, problems, verifier)
    evaluation = backend.make_evaluation(spec, encoder, problems, verifier)
    sampling = Sampling(spec.rollout.width, spec.rollout.temperature)
    root = ForwardRoot(model, getattr(torch, spec.model.dtype))  # casts to bfloat16, where a recipe says so
    optimizer = make_optimizer(model, schedule, spec.update)

    def pass_rate(version: int = 0) -> float:
        """The share of the evaluation's problems that the current weights solve."""
        engine.publish(named_weights(model), version)
        verdicts = [answer.verdict for answer in evaluation(engine) if answer.verdict.scored]
        return sum(verdict.correct is True for verdict in verdicts) / len(verdicts)

    # Phase 0, for a starter model only: supervised, until it solves some of the problems.
    if spec.warm_start.pass_rate > 0:
        warm_start(model, tokenizer, problems, encoder.encode, spec.warm_start, seed, pass_rate, print)
    print(f"before: pass rate {pass_rate():.3f}")

    losses: list[float] = []
    for step in range(1, schedule.steps + 1):
        # Rollout: G responses to each of P prompts, drawn by pi_old, the policy after the last step. Each row has its
        # own seed, so that it does not depend on which rows are drawn beside it.
        numbers, step_seed = task.prompts(step), derive(seed, "rollout", step)
        drawn = engine.generate(
            [encode(number) for number in numbers.tolist()], size, row_seeds(numbers, size, step_seed), sampling
        )
        # The engine's log-probabilities of its draws are log pi_old, [P * G, T].
        rollouts = make_rollouts(numbers, step_seed, drawn, version=step - 1, width=sampling.width)

        # Rewards [P, G], and credit: the advantage, temperature and weight of every response. For PMD-mean the
        # advantage is the reward less the mean of the other responses to the same prompt.
        groups = graded(task.reward(rollouts), rollouts)
        batch = credit(objective, groups, rollouts.logp_old, rollouts.mask, width=rollouts.width)

        # Updates: the batch is split by prompts. Only the first ministep is on-policy; from the second on pi has moved
        # away from pi_old, and the regression of PMD differs from a policy gradient.
        engine.enter("update")  # an engine on the same accelerator frees its memory
        step_losses, norms = [], []
        for part, some in ministeps(rollouts, batch, schedule.ministeps):
            prompts = [encode(number) for number in part.prompts.tolist() for _ in range(size)]
            loss, norm = update(
                root, optimizer, objective, prompts, response_tokens(part), some, size, spec.update.token_budget,
                spec.update.clip, sampling.temperature,
            )  # fmt: skip
            step_losses.append(loss)
            norms.append(norm)

        # Weight sync: the next rollout is drawn by the new policy. Nothing computed with the old weights survives.
        engine.publish(named_weights(model), step)

        losses.append(sum(step_losses) / len(step_losses))
        print(f"step {step}: reward {groups.reward.mean():.3f}, loss {losses[-1]:.5f}, gradient {max(norms):.3f}")
    print(f"after: pass rate {pass_rate(schedule.steps):.3f}")
    verifier.close()
    engine.close()
    return losses


def update(
    root: nn.Module,
    optimizer: torch.optim.Optimizer,
    objective: Objective,
    prompts: Sequence[Tokens],
    responses: Sequence[Tensor],
    batch: Batch,
    size: int,
    token_budget: int,
    clip: float,
    temperature: float,
) -> tuple[float, float]:
    """One optimizer step on N responses, `size` to a prompt; returns the loss and the gradient's norm before clipping.

    The sum over micro-batches is the loss of the whole batch: `batch.weight` already counts all its prompts.
    """
    optimizer.zero_grad(set_to_none=True)
    loss, rounding = 0.0, RoundingCheck(objective)
    counted = ((batch.weight != 0) & batch.mask.any(1)).tolist()  # a response without a verdict costs no forward pass
    whole_groups = traits(objective).whole_groups  # losses that compare the rows of a group see all of them at once
    for rows in token_budget_batches(prompts, responses, size, token_budget, whole_groups, counted):
        some = batch[torch.tensor(rows)]
        x, y = [prompts[row] for row in rows], [responses[row].tolist() for row in rows]
        logp: Tensor
        if traits(objective).level == "token":
            # log pi(y_t | x, y_<t) of every token, [n, T]; then the objective's loss, weighted and summed
            flat = root(lambda model, x=x, y=y: response_logp(model, x, y, temperature=temperature))
            logp = to_rows(flat, [len(row) for row in y], batch.mask.shape[1]).double().cpu()
            part = total(objective, replace(some, logp=logp))
        else:
            # A loss of log pi(y | x), the sum over a response: head and loss are fused, and no logits are kept.
            # The same, slower: logp as above, and total(objective, replace(some, logp=logp)).
            fused = root(
                lambda model, x=x, y=y, some=some: fused_total(model, x, y, objective, some, temperature=temperature)
            )
            part, logp = fused.loss, fused.seq_logp[:, None]
        part.backward()
        rounding(batch, rows, logp)
        loss += part.item()
    norm = nn.utils.clip_grad_norm_((weight for group in optimizer.param_groups for weight in group["params"]), clip)
    # Where all rewards of a batch agree, the gradient is 0 up to rounding; Adam would make a step of full size of it.
    if rounding.signal:
        optimizer.step()
    return loss, float(norm)


if __name__ == "__main__":
    main()
