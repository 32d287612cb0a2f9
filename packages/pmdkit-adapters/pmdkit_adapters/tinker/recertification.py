"""Certify a server again during a run: it may be replaced, or lose a client's state, while the run trains on it."""

from dataclasses import dataclass, field

from torch import Tensor

from pmdkit.errors import ComponentDied
from pmdkit.fit import RunContext, StepResult, TrainerCallback
from pmdkit.llm.engines.base import Tokens
from pmdkit_adapters.tinker.certificate import Witness, furthest
from pmdkit_adapters.tinker.learner import TinkerLearner

EVERY = 10  # steps; the first is one of them
FAR = 10.0  # nats that a token may move in a step: no run that learns goes further
NEARER = 3.0  # factor by which a sampler's scores are nearer to old weights than to new ones if it is stale


@dataclass
class RecertificationCallback(TrainerCallback):
    """After every EVERY steps, before the checkpoint: does the server still take the right gradient, did the step move
    the policy by a plausible amount, and does the sampler have the new weights?

    Args:
        text: whose log-probabilities show it.
    """

    learner: TinkerLearner
    witness: Witness
    text: Tokens
    before: Tensor | None = field(default=None, init=False)
    "Log-probabilities of the text before a step that will be judged."
    passed: int = field(default=0, init=False)
    "The last step after which the server passed."

    def on_train_begin(self, run: RunContext) -> None:
        """Score the text before the first step, so that the step can be judged."""
        self.passed = self.learner.version
        self.before = self.score()

    def score(self) -> Tensor:
        """[n - 1] log-probabilities of the text under the current weights."""
        return self.learner.client.logp([self.text])[0]

    def on_step_end(self, run: RunContext, result: StepResult) -> None:
        """Judge the step, if it is its turn.

        Raises:
            ComponentDied: the server does not train as it was asked to.
        """
        # equal rewards leave no gradient, and no step is taken
        taken = any(update["skipped"] < self.learner.passes and update.get("lr", 1.0) for update in result.updates)
        if self.before is not None and taken:
            self.judge(run, result.step, self.before)
            self.before, self.passed = None, result.step
        if result.step % EVERY == 0 and self.before is None:
            self.before = self.score()

    def judge(self, run: RunContext, step: int, before: Tensor) -> None:
        """Raise if the server is wrong; warn if the step is strange."""
        url = self.witness.client.server.url
        doubt = f"steps after {self.passed} are in doubt: take another server, and start again with another --out"
        if wrong := self.witness.fault():
            raise ComponentDied(f"the Tinker server at {url} no longer takes the right gradient ({wrong}); {doubt}")
        after = self.score()
        moved = furthest(before, after)
        if not 0 < moved <= FAR:
            run.display.warn(
                f"step {step} moved a text's log-probabilities by at most {moved:.2g} nats: the server at {url} "
                "steps otherwise than it was asked to, or lr is wrong"
            )
        self.learner.sync_weights()
        sampled = self.learner.engine.score([self.text[:1]], [self.text[1:]])[0]
        if float((sampled - before).norm()) * NEARER < float((sampled - after).norm()):
            raise ComponentDied(
                f"the sampler of the Tinker server at {url} has older weights than the trainer; {doubt}"
            )
