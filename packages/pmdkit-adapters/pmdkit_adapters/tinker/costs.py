"""What a run on a Tinker server may cost, in tokens, said before it starts; prices are the service's."""

from collections.abc import Sequence
from dataclasses import dataclass

from pmdkit.fit import RunContext, TrainerCallback
from pmdkit.llm.old_logprobs import SAMPLE
from pmdkit.observe.metrics import RESCORED
from pmdkit.specs import LLMSpec


def token_costs(spec: LLMSpec, prompt: float, reference: bool = False) -> dict[str, int]:
    """The most tokens that a run takes of a server, with prompts of `prompt` tokens on average.

    `reference`: the objective has a reference policy, under which every response is scored. Responses of dynamic
    sampling count as often as they may be drawn. The few hundred tokens of the certificate are left out.
    """
    schedule, rollout, evaluation = spec.schedule, spec.rollout, spec.evaluation
    prompts, group, steps = schedule.prompts or 0, schedule.group or 0, schedule.steps
    rows, draws = prompts * group, rollout.max_num_gen_batches
    tests = 2 + ((steps - 1) // evaluation.every if evaluation.every else 0)
    measured = SAMPLE if rollout.old == "rollout" and rollout.correction == "none" else rows
    looks = draws * (min(measured, rows) + rows * reference) + min(max(RESCORED, 2 * group), rows)
    return {
        "tokens sampled, at most": steps * draws * rows * rollout.width
        + tests * evaluation.problems * evaluation.k * (evaluation.width or rollout.width),
        "tokens of prompts to sample from": int(prompt * (steps * draws * prompts + tests * evaluation.problems)),
        "tokens scored, at most": int(steps * (prompt + rollout.width) * (rows * schedule.passes + looks)),
        "tokens trained, at most": int(steps * (prompt + rollout.width) * rows * schedule.passes),
    }


@dataclass
class CostCallback(TrainerCallback):
    """Says before the first evaluation what the run may cost, and by which call the server is driven."""

    prompt: float
    reference: bool
    faults: Sequence[str]

    def on_init_end(self, run: RunContext) -> None:
        """Show the tokens that the run costs, and warn of calls of the server whose gradient is wrong."""
        assert isinstance(run.spec, LLMSpec)
        costs = token_costs(run.spec, self.prompt, self.reference)
        run.display.note("on the server: " + "; ".join(f"{count:,} {what}" for what, count in costs.items()))
        for fault in self.faults:
            run.display.warn(f"the server's gradient is wrong by {fault}: another call is used, which was proved right")
