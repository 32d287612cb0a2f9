"""The full prediction for a recipe on a cluster: report, advice on what would fit, and the best division.

A division of the cluster says how many accelerators only generate while the others train.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

from pmdkit.specs import LLMSpec
from pmdkit_lab.planner.cluster import NODE, PRACTICE, RECORD, Cluster, Efficiency
from pmdkit_lab.planner.data_sheets import GPUS
from pmdkit_lab.planner.memory import GIB, Memory, memory
from pmdkit_lab.planner.step_time import EngineSize, Generation, Update, generation, scoring, update
from pmdkit_lab.planner.workload import ResponseLengths, Sizes, Workload

MOST = 4096  # accelerators; advice to rent more would not help anybody
SUGGESTIONS = 4
NARROWEST = 256  # tokens; a mathematical answer with its reasoning is seldom shorter


@dataclass(frozen=True)
class Prediction:
    """The predicted cost of a step.

    Attributes:
        sizes, work, lengths, cluster, efficiency: the inputs of the prediction.
        serve: accelerators that only generate while the others only train; 0 if all do both in turns.
        counts: of an accepted rehearsal, `accepted.counts_of`.
    """

    sizes: Sizes
    work: Workload
    lengths: ResponseLengths
    cluster: Cluster
    efficiency: Efficiency = PRACTICE
    serve: int = 0
    counts: Mapping[str, int] | None = None

    @property
    def generators(self) -> Cluster:
        """Accelerators that generate."""
        return replace(self.cluster, count=self.serve) if self.serve else self.cluster

    @property
    def trainers(self) -> Cluster:
        """Accelerators that train."""
        return replace(self.cluster, count=self.cluster.count - self.serve)

    @property
    def engine(self) -> EngineSize:
        """The cost model of decoding on one engine."""
        return EngineSize(self.sizes, self.generators, self.efficiency)

    @cached_property
    def memory(self) -> Memory:
        """Memory by phase."""
        return memory(self.engine, self.work, self.lengths, self.trainers if self.serve else None)

    @property
    def room(self) -> float:
        """Tokens whose keys and values an engine has room for; a plan that does not fit is timed as if one row did."""
        return max(self.memory.room, float(self.work.longest))

    @cached_property
    def generation(self) -> Generation:
        """Generation time of one step."""
        found = generation(self.engine, self.lengths, self.work.rows, self.work.prompt, self.room, self.work.slots)
        sent = self.sizes.width_bytes * self.sizes.weights / self.cluster.wire  # trainers and engines may be far apart
        return replace(found, sync=sent) if self.serve else found

    @cached_property
    def update(self) -> Update:
        """Update time of one step."""
        return update(self.sizes, self.work, self.lengths, self.trainers, self.efficiency, self.counts)

    @cached_property
    def scoring(self) -> float:
        """Scoring time of one step, seconds."""
        return scoring(self.sizes, self.work, self.lengths, self.trainers, self.efficiency)

    @property
    def overlaps(self) -> bool:
        """Whether generation and update run at the same time: on separate accelerators, and with a lag."""
        return self.serve > 0 and self.work.lag > 0

    @property
    def seconds(self) -> float:
        """Seconds of one step, without evaluations, and without the verifier, which runs alongside the engine."""
        training = self.scoring + self.update.seconds
        generating = self.generation.seconds
        return max(generating, training) if self.overlaps else generating + training

    @property
    def tokens(self) -> float:
        """Response tokens in a step."""
        return self.work.rows * self.lengths.mean

    @property
    def age(self) -> float:
        """Steps that the policy of a token lags behind, mean over tokens; every token of a row takes as long here."""
        generating, training = self.generation.seconds, self.scoring + self.update.seconds
        if not self.work.in_flight or training >= generating:  # engines that are ahead wait at the lag
            return self.work.lag
        # a rollout begins with an update, and has its weights once that has ended: few long rows are still written then
        written = round(self.lengths.longest(self.work.rows) * training / generating)
        return float(self.lengths.alive[:written].sum()) / self.lengths.mean

    @property
    def staleness(self) -> float:
        """Updates between the policy that wrote a response and the last one that learns from it; in flight a mean."""
        return (self.age + 1) * self.work.ministeps * self.work.passes - 1

    @property
    def ms_per_token(self) -> dict[str, float]:
        """Milliseconds per response token for the whole cluster; "overall" leaves scoring out, as the paper does."""
        parts = {"generation": self.generation.seconds, "scoring": self.scoring, "update": self.update.seconds}
        milliseconds = {name: 1e3 * seconds / self.tokens for name, seconds in parts.items()}
        together = max if self.overlaps else sum
        return {"overall": together((milliseconds["generation"], milliseconds["update"])), **milliseconds}

    @property
    def on_policy(self) -> "Prediction":
        """The recipe with each ministep's prompts as a separate rollout batch."""
        alone = replace(self.work, prompts=self.work.prompts / self.work.ministeps, ministeps=1, lag=0)
        return replace(self, work=alone)

    @property
    def speedup(self) -> float:
        """On-policy time per token over this recipe's: generation and update, the two columns of the paper's table."""
        return self.on_policy.ms_per_token["overall"] / self.ms_per_token["overall"]


def best(prediction: Prediction) -> Prediction | None:
    """The fastest division that fits, of each number of accelerators that only generate; in whole machines if large.

    With rollout.lag = 0 the two sides wait for each other in any division. With a lag the fastest division is the
    balanced one, since a step lasts as long as the slower side.
    """
    whole = prediction.cluster
    unit = NODE if whole.count > 2 * NODE and NODE % whole.tensor == 0 else whole.tensor
    divisions = (replace(prediction, serve=serve) for serve in range(unit, whole.count, unit))
    # ties: if one side does not get faster, the other gets the accelerators that it cannot use
    return min(
        (one for one in divisions if one.memory.fits),
        key=lambda one: (one.seconds, one.generation.seconds + one.update.seconds),
        default=None,
    )


def report(spec: LLMSpec, prediction: Prediction) -> dict[str, Any]:
    """The report of `pmdkit plan --json`. Memory is per accelerator; seconds and ms/token are for the whole cluster."""
    memory, work, cluster = prediction.memory, prediction.work, prediction.cluster
    engines, faster = prediction.generators.engines, best(prediction) if prediction.serve else None
    evaluations, responses = evaluations_of(spec)
    evaluation = evaluation_seconds(prediction, responses, spec.evaluation.width or spec.rollout.width)
    hours = (spec.schedule.steps * prediction.seconds + evaluations * evaluation) / 3600
    return {
        "recipe": spec.name,
        "gpus": f"{cluster.count}x{cluster.gpu.name}",
        "fits": memory.fits,
        "memory_gib": memory.totals,
        "memory_parts_gib": memory.phases,
        "memory_limit_gib": memory.limit,
        "host_gib_for_lag": work.lag * prediction.sizes.width_bytes * prediction.sizes.weights / GIB,
        "seconds_generation": prediction.generation.seconds,
        "seconds_scoring": prediction.scoring,
        "seconds_update": prediction.update.seconds,
        "seconds_update_at_least": prediction.update.bound or None,
        "update_bound_of_measured": RECORD,
        "update_waits_for": "network" if prediction.update.wire > prediction.update.compute else "products",
        "seconds_step": prediction.seconds,
        "evaluations": evaluations,
        "responses_evaluation": responses,
        "seconds_evaluation": evaluation,
        "hours": hours,
        "gpu_hours": cluster.count * hours,
        "lag": work.lag,
        "staleness": prediction.staleness,
        "division": {
            "generate": prediction.generators.count,
            "train": prediction.trainers.count,
            "apart": prediction.serve > 0,
            "best_serve": faster.serve if faster else None,
            "best_seconds_step": faster.seconds if faster else None,
        },
        "ms_per_token": prediction.ms_per_token,
        "on_policy_ms_per_token": prediction.on_policy.ms_per_token,
        "speedup_over_on_policy": prediction.speedup,
        "batch": {
            "prompts_per_step": work.prompts,
            "responses_per_prompt": work.group,
            "responses_per_step": work.rows,
            "responses_per_ministep": work.rows / work.ministeps,
            "updates_per_step": work.ministeps * work.passes,
            "visits_per_ministep": prediction.update.visits,
            "engines": engines,
            "responses_per_engine": work.rows / min(engines, max(1.0, work.rows)),
        },
        "generation": asdict(prediction.generation),
        "assumptions": {
            "mean_response_tokens": prediction.lengths.mean,
            "longest_response_tokens": prediction.lengths.longest(work.rows),
            "prompt_tokens": work.prompt,
            "engine_memory_share": work.share,
            **asdict(prediction.efficiency),
        },
        "advice": advice(prediction),
    }


def evaluations_of(spec: LLMSpec) -> tuple[int, int]:
    """Evaluations of a run, and the responses of each: before the first step, every k-th step, and after the last."""
    table, steps = spec.evaluation, spec.schedule.steps
    most = {"aime24": 30, "aime25": 30, "held-out": spec.env.get("held_out")}.get(table.data)
    count = 1 + (-(-steps // table.every) if table.every else 1)
    return count, table.k * min(table.problems, most or table.problems)


def evaluation_seconds(prediction: Prediction, rows: int, width: int) -> float:
    """Seconds of one evaluation, whose response lengths have the shape of the rollouts' at its own width."""
    lengths, work = prediction.lengths, prediction.work
    if width != lengths.width:
        shape = np.linspace(0, lengths.width - 1, width)
        lengths = ResponseLengths(np.interp(shape, np.arange(lengths.width), lengths.alive))
    return generation(prediction.engine, lengths, rows, work.prompt, prediction.room, work.slots).seconds


# What would make a plan fit: options with other values.

Change = tuple[str, str, Prediction]  # the option, the change as written on the command line, the prediction with it


def advice(prediction: Prediction) -> list[dict[str, Any]]:
    """Up to SUGGESTIONS that fit: those that change the fewest options, fastest first, then one with other hardware.

    Each has the changes as written on the command line, the GiB of the fullest phase and the seconds per step with
    them. Narrower responses come last: they are less work, not faster work.
    """
    if prediction.memory.fits:
        return []
    fitting: list[tuple[str, Prediction]] = []
    tried: list[tuple[list[str], str, Prediction]] = [([], "", prediction)]
    for _ in range(3):  # one option, then two, then three
        tried = [
            ([*options, option], f"{words} {more}".strip(), changed)
            for options, words, before in tried
            for option, more, changed in settings(before)
            if option > max(options, default="")  # so that each set of options comes once
        ]
        fitting = [(words, changed) for _, words, changed in tried if changed.memory.fits]
        if fitting:
            break
    fitting.sort(key=lambda made: (made[1].work.longest < prediction.work.longest, made[1].seconds))
    fitting = fitting[: SUGGESTIONS - 1]
    fitting += islice(((words, changed) for _, words, changed in hardware(prediction) if changed.memory.fits), 1)
    return [
        {"words": words, "gib": max(changed.memory.totals.values()), "seconds": changed.seconds}
        for words, changed in fitting
    ]


def settings(p: Prediction) -> Iterator[Change]:
    """Changes to one option of the recipe or the plan that need no other hardware."""
    work, engines = p.work, p.generators

    def with_work(**changes: Any) -> Prediction:
        return replace(p, work=replace(work, **changes))

    if not work.checkpointing:
        yield "checkpointing", "--set model.checkpointing=true", with_work(checkpointing=True)
    if not work.fsdp2 and p.trainers.count > 1:
        yield "strategy", "--set parallel.strategy=fsdp2", with_work(fsdp2=True)
    if work.token_budget > work.longest:
        yield "budget", f"--set update.token_budget={work.longest}", with_work(token_budget=work.longest)
    held = p.memory.phases["rollout"]
    state = held.get("weights", 0.0) + held.get("optimizer", 0.0)
    share = max(
        0.01, int(100 * (p.memory.limit - state) / p.cluster.gpu.gib) / 100
    )  # the share that the trainer leaves
    if work.share is not None and share != work.share:
        yield "share", f"--set vllm.memory={share:g}", with_work(share=share)
    if work.share is None and not p.serve and not work.lag:  # it sleeps during updates
        words = f"--set rollout.engine=vllm vllm.memory={share:g}"
        yield "engine", words, with_work(share=share, sleeps=True)
    tensor = 2 * engines.tensor
    while tensor <= NODE and engines.count % tensor == 0:
        yield "tp", f"--tp {tensor}" + serve_words(p.serve), replace(p, cluster=replace(p.cluster, tensor=tensor))
        tensor *= 2
    for part in (2, 4):
        width = p.lengths.width // part
        if width >= NARROWEST:  # lengths of the same shape
            narrow = with_work(longest=work.longest - p.lengths.width + width, width=width)
            shape = ResponseLengths(p.lengths.alive[::part][:width])
            yield "width", f"--set rollout.width={width}", replace(narrow, lengths=shape)


def hardware(p: Prediction) -> Iterator[Change]:
    """Twice as many accelerators, then four times, ..., with the state sharded; then as many larger ones."""
    gpu, count = p.cluster.gpu, p.cluster.count
    while 2 * count <= MOST:
        count *= 2
        serve = p.serve * count // p.cluster.count
        strategy = "" if p.work.fsdp2 else " --set parallel.strategy=fsdp2"
        more = replace(p, cluster=replace(p.cluster, count=count), work=replace(p.work, fsdp2=True), serve=serve)
        yield "gpus", f"--gpus {count}x{gpu.name}{serve_words(serve)}{strategy}", more
    for other in sorted(GPUS.values(), key=lambda other: other.gib):
        if other.gib > gpu.gib:
            words = f"--gpus {p.cluster.count}x{other.name}{serve_words(p.serve)}"
            yield "gpus", words, replace(p, cluster=replace(p.cluster, gpu=other))


def serve_words(serve: int) -> str:
    """The --serve option for this many accelerators that only generate; "" for 0."""
    return f" --serve {serve}" if serve else ""
