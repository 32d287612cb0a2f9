"""The backend `tinker`, named by the entry point `pmdkit.backends`: checks, costs, and what a run needs."""

from dataclasses import replace
from urllib.parse import urlsplit

from transformers import PreTrainedModel

from pmdkit.envs.math.problem import MathProblems
from pmdkit.errors import UsageError, short
from pmdkit.fit import Backend
from pmdkit.llm.callbacks.progress import ProgressCallback
from pmdkit.llm.prompts import Encoder, encode_numbers
from pmdkit.objectives import Objective, traits
from pmdkit.process_group import launched_ranks
from pmdkit.specs import LLMSpec
from pmdkit_adapters.tinker.costs import CostCallback
from pmdkit_adapters.tinker.costs import token_costs as costs

__all__ = ["costs", "make", "resolve"]

EXCLUDES: dict[str, tuple[object, str]] = {
    "model.build": (None, "the server has its own models, which model.path names"),
    "rollout.engine": ("transformers", "the server draws the responses"),
    "rollout.lag": (0, "only the newest weights can be sampled"),
    "rollout.environment": (None, "episodes of several turns are not sampled there"),
    "rollout.temperature": (1.0, "the server trains the policy at temperature 1"),
    "lora.alpha": (32.0, "the server decides the scale of adapters"),
    "lora.targets": (None, "the server decides which layers have adapters"),
    "parallel.processes": (1, "one process asks the server, which does the work"),
}
"Options that must keep these values on a Tinker server, and why."
RANK = 32  # the SDK's default


def resolve(spec: LLMSpec) -> LLMSpec:
    """The spec with the rank of its adapters, by default RANK; refuses what a Tinker server cannot give."""
    url = spec.remote.url
    parts = urlsplit(url or "")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
        raise UsageError(
            f"remote.url is {short(url)} with the tinker backend; expected the address of a server, such as "
            "--url http://127.0.0.1:8000"
        )
    for key, (usual, why) in EXCLUDES.items():
        table, _, name = key.partition(".")
        if (value := getattr(getattr(spec, table), name)) != usual:
            raise UsageError(f"{key} is {value!r} with the tinker backend: {why}; expected {usual!r}")
    if (name := spec.schedule.optimizer) not in ("adam", "adamw"):
        raise UsageError(f"schedule.optimizer is '{name}' with the tinker backend: expected adamw, or adam")
    if launched_ranks() > 1:
        raise UsageError("several processes were launched with the tinker backend; expected one: the server trains")
    return spec.model_copy(update={"lora": spec.lora.model_copy(update={"rank": spec.lora.rank or RANK})})


def make(
    spec: LLMSpec, objective: Objective, model: PreTrainedModel, encoder: Encoder, problems: MathProblems
) -> Backend:
    """Everything that a run needs; the server is certified first."""
    from pmdkit.llm import backend as here
    from pmdkit_adapters.tinker import learner as on_server
    from pmdkit_adapters.tinker.recertification import RecertificationCallback

    text = (encoder.encode(here.PROBE) * 8)[:24]  # any will do: the server is certified with it
    client, witness, faults = on_server.certified_client(spec, text)
    verifier, progress = here.make_verifier(spec), ProgressCallback()
    task = here.make_task(spec, model, encoder, problems, verifier)
    encode, reference = encode_numbers(problems, encoder), traits(objective).uses_reference
    learner = on_server.TinkerLearner(
        spec, client, model, encoder.tokenizer, encode, text, progress.progress, reference=reference
    )
    evaluation = here.make_evaluation(spec, encoder, problems, verifier)
    backend = here.assemble(spec, objective, learner, task, evaluation, progress)
    lengths = [len(encode(number)) for number in task.prompts(1).tolist()]
    costs = CostCallback(sum(lengths) / len(lengths), reference, faults)
    again = RecertificationCallback(learner, witness, text)
    return replace(backend, callbacks=[costs, again, *backend.callbacks])
