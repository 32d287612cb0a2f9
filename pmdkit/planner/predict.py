"""The whole prediction of a recipe on a cluster: its report, what would make it fit, and the best division.

A division of the cluster is how many accelerators only generate while the others train.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any

from pmdkit.config import Spec
from pmdkit.planner.hardware import GPUS, NODE, PRACTICE, Cluster, Efficiency
from pmdkit.planner.memory import Memory, memory
from pmdkit.planner.timing import EngineSize, Generation, Update, generation, scoring, update
from pmdkit.planner.workload import ResponseLengths, Sizes, Workload
from pmdkit.theory import METHODS, best_budget

MOST = 4096  # accelerators; more is no advice
NARROWEST = 256  # tokens; a mathematical answer with its reasoning is seldom shorter


@dataclass(frozen=True)
class Prediction:
    """What a step costs.

    Attributes:
        sizes, work, lengths, cluster, efficiency: what it rests on.
        serve: accelerators that only generate, the others only train; 0 where all do both in turns.
    """

    sizes: Sizes
    work: Workload
    lengths: ResponseLengths
    cluster: Cluster
    efficiency: Efficiency = PRACTICE
    serve: int = 0

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
        """What decoding costs."""
        return EngineSize(self.sizes, self.generators, self.efficiency)

    @cached_property
    def memory(self) -> Memory:
        """By phase."""
        return memory(self.engine, self.work, self.lengths, self.trainers if self.serve else None)

    @property
    def room(self) -> float:
        """Tokens whose keys and values an engine holds; a plan that does not fit is timed as if one row did."""
        return max(self.memory.room, float(self.work.longest))

    @cached_property
    def generation(self) -> Generation:
        """Of one step."""
        found = generation(self.engine, self.lengths, self.work.rows, self.work.prompt, self.room, self.work.slots)
        sent = self.sizes.width_bytes * self.sizes.weights / self.cluster.wire  # trainers and engines may be far apart
        return replace(found, sync=sent) if self.serve else found

    @cached_property
    def update(self) -> Update:
        """Of one step."""
        return update(self.sizes, self.work, self.lengths, self.trainers, self.efficiency)

    @cached_property
    def scoring(self) -> float:
        """Seconds of one step."""
        return scoring(self.sizes, self.work, self.lengths, self.trainers, self.efficiency)

    @property
    def overlaps(self) -> bool:
        """Whether generation and update run at the same time: on accelerators of their own, and one step behind."""
        return self.serve > 0 and self.work.lag > 0

    @property
    def seconds(self) -> float:
        """Of one step, verifier and evaluations left out: the verifier runs beside the engine."""
        training = self.scoring + self.update.seconds
        generating = self.generation.seconds
        return max(generating, training) if self.overlaps else generating + training

    @property
    def tokens(self) -> float:
        """Tokens of responses in a step."""
        return self.work.rows * self.lengths.mean

    @property
    def staleness(self) -> int:
        """Updates between the policy that wrote a response and the last one that learns from it."""
        return (self.work.lag + 1) * self.work.ministeps * self.work.passes - 1

    @property
    def ms_per_token(self) -> dict[str, float]:
        """Milliseconds per token of response, of the whole cluster; "overall" leaves scoring out, as the paper does."""
        parts = {"generation": self.generation.seconds, "scoring": self.scoring, "update": self.update.seconds}
        milliseconds = {name: 1e3 * seconds / self.tokens for name, seconds in parts.items()}
        together = max if self.overlaps else sum
        return {"overall": together((milliseconds["generation"], milliseconds["update"])), **milliseconds}

    @property
    def on_policy(self) -> "Prediction":
        """The same recipe with each ministep's prompts as a rollout batch of their own."""
        alone = replace(self.work, prompts=self.work.prompts / self.work.ministeps, ministeps=1, lag=0)
        return replace(self, work=alone)

    @property
    def speedup(self) -> float:
        """On-policy time per token over this recipe's: generation and update, the two columns of the paper's table."""
        return self.on_policy.ms_per_token["overall"] / self.ms_per_token["overall"]


def divisions(prediction: Prediction) -> Iterator[Prediction]:
    """The same with other numbers of accelerators that only generate; whole machines where there are several."""
    whole = prediction.cluster
    unit = max(whole.tensor, whole.expert)
    if whole.count > 2 * NODE and NODE % unit == 0:
        unit = NODE
    for serve in range(unit, whole.count, unit):
        yield replace(prediction, serve=serve)


def best(prediction: Prediction) -> Prediction | None:
    """The fastest division that fits; with rollout.lag = 0 the two wait for each other in any.

    With a lag this is the balanced one, since a step lasts as long as the slower side.
    """
    fitting = [one for one in divisions(prediction) if one.memory.fits]
    # where one side does not get faster, the other takes what it has no use for
    return min(fitting, key=lambda d: (d.seconds, d.generation.seconds + d.update.seconds), default=None)


def report(spec: Spec, prediction: Prediction) -> dict[str, Any]:
    """What `pmdkit plan --json` prints. Memory is of one accelerator; seconds and ms/token are of the whole cluster."""
    memory, work, cluster = prediction.memory, prediction.work, prediction.cluster
    engines = prediction.generators.engines
    return {
        "recipe": spec.name,
        "gpus": f"{cluster.count}x{cluster.gpu.name}",
        "fits": memory.fits,
        "memory_gib": memory.totals,
        "memory_parts_gib": memory.phases,
        "memory_limit_gib": memory.limit,
        "seconds_generation": prediction.generation.seconds,
        "seconds_scoring": prediction.scoring,
        "seconds_update": prediction.update.seconds,
        "update_waits_for": "network" if prediction.update.wire > prediction.update.compute else "products",
        "seconds_step": prediction.seconds,
        "hours": spec.schedule.steps * prediction.seconds / 3600,
        "gpu_hours": cluster.count * spec.schedule.steps * prediction.seconds / 3600,
        "lag": work.lag,
        "staleness": prediction.staleness,
        "division": division(prediction),
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
        "generation": {
            "decode_steps": prediction.generation.steps,
            "decode_seconds": prediction.generation.decode,
            "prefill_seconds": prediction.generation.prefill,
            "sync_seconds": prediction.generation.sync,
            "waiting_share": prediction.generation.queue,
        },
        "assumptions": {
            "mean_response_tokens": prediction.lengths.mean,
            "longest_response_tokens": prediction.lengths.longest(work.rows),
            "prompt_tokens": work.prompt,
            "engine_memory_share": work.share,
            **asdict(prediction.efficiency),
        },
        "advice": [asdict(made) for made in advice(prediction)],
    }


def division(prediction: Prediction) -> dict[str, Any]:
    """Who generates and who trains, and the division whose step is shortest."""
    faster = best(prediction) if prediction.serve else None
    return {
        "generate": prediction.generators.count,
        "train": prediction.trainers.count,
        "apart": prediction.serve > 0,
        "overlap": prediction.overlaps,
        "best_serve": faster.serve if faster else None,
        "best_seconds_step": faster.seconds if faster else None,
    }


# The same responses in other groups: what the law of draws expects of them.

POOL = (0.05, 0.2, 0.5, 0.8, 0.95)  # pass rates that are assumed where none are given
RUNS = 60  # that are drawn, for a standard error of about 0.01


def draws_advice(spec: Spec, rates: Sequence[float] = POOL) -> dict[str, Any] | None:
    """What a prompt gains from its responses in groups as large as planned and in smaller ones that come more often.

    The tokens, the responses of a step and its updates stay: half the group is twice the prompts. tau is the recipe's,
    a quarter and four times of it. None where the law has nothing to say: other objectives, or a rule for tau.
    """
    chosen = spec.objective
    tau, name, group = chosen.get("tau"), chosen.get("name"), spec.schedule.group
    if name not in METHODS or not isinstance(tau, (int, float)) or group is None or group < 2:
        return None
    span = 2.0 if spec.reward is not None and spec.reward.scale == "plus-minus-one" else 1.0
    found = best_budget(
        rates,
        group * len(rates),
        taus=(tau / span / 4, tau / span, 4 * tau / span),
        sizes=tuple(n for n in (group >> turn for turn in range(4)) if n >= 2 and group % n == 0),
        groups=(1,),
        lr=None,
        method=str(name),
        runs=RUNS,
    )
    planned = next(one for one in found if one.n == group and one.tau == tau / span)
    return {
        "pass_rates": list(rates),
        "planned": {"tau": tau, "group": group, "times": 1, "pass_rate": planned.pass_rate, "error": planned.error},
        "best": {
            "tau": found[0].tau * span,
            "group": found[0].n,
            "times": found[0].steps,
            "pass_rate": found[0].pass_rate,
            "error": found[0].error,
        },
    }


# What would make a plan fit: options with other values.


@dataclass(frozen=True)
class Change:
    """One option with another value.

    Attributes:
        option: which; a plan changes it once.
        words: how it is asked for on the command line.
        apply: the prediction under it.
    """

    option: str
    words: str
    apply: Callable[[Prediction], Prediction]


@dataclass(frozen=True)
class Advice:
    """Changes that make the plan fit.

    Attributes:
        words: how they are asked for.
        gib: the fullest phase then, GiB.
        seconds: of a step then. A narrower response is less work, not faster work.
    """

    words: str
    gib: float
    seconds: float


def advice(prediction: Prediction, most: int = 4) -> list[Advice]:
    """Up to `most` suggestions: the fewest changed options that fit, fastest first, then other hardware."""
    if prediction.memory.fits:
        return []
    found: list[Advice] = []
    options = list(settings(prediction))
    for size in (1, 2, 3):
        for chosen in combinations(options, size):
            if len({change.option for change in chosen}) == size:
                found += tried(prediction, chosen)
        if found:
            break
    found = sorted(found, key=lambda made: made.seconds)[: most - 1]
    return found + next((made for change in hardware(prediction) if (made := tried(prediction, [change]))), [])


def tried(prediction: Prediction, changes: Sequence[Change]) -> list[Advice]:
    """The advice, if it fits."""
    for change in changes:
        prediction = change.apply(prediction)
    if not prediction.memory.fits:
        return []
    words = " ".join(change.words for change in changes)
    return [Advice(words, max(prediction.memory.totals.values()), prediction.seconds)]


def settings(prediction: Prediction) -> Iterator[Change]:
    """Options of the recipe and of the plan that need no other hardware."""
    work, engines = prediction.work, prediction.generators
    if not work.checkpointing:
        yield Change("checkpointing", "--set model.checkpointing=true", with_work(checkpointing=True))
    if not work.fsdp2 and prediction.trainers.count > 1 and may_share(prediction):
        yield Change("strategy", "--set parallel.strategy=fsdp2", with_work(fsdp2=True))
    if work.token_budget > work.longest:
        budget = f"--set update.token_budget={work.longest}"
        yield Change("budget", budget, with_work(token_budget=work.longest))
    share = engine_share(prediction)
    if work.share is not None and share != work.share:
        yield Change("share", f"--set vllm.memory={share:g}", with_work(share=share))
    if work.share is None and not prediction.serve and not work.lag:
        words = f"--set rollout.engine=vllm vllm.memory={share:g}"  # it sleeps during updates
        yield Change("engine", words, with_work(share=share, sleeps=True))
    tensor = 2 * engines.tensor
    while tensor <= NODE and engines.count % tensor == 0:
        yield Change("tp", f"--tp {tensor}" + serve_words(prediction.serve), with_tensor(tensor))
        tensor *= 2
    for part in (2, 4):
        width = prediction.lengths.width // part
        if width >= NARROWEST:
            yield Change("width", f"--set rollout.width={width}", narrower(width))


def hardware(prediction: Prediction) -> Iterator[Change]:
    """More of the same accelerator, each with a share of the state where that is allowed, then larger ones."""
    gpu, count = prediction.cluster.gpu, prediction.cluster.count
    share = may_share(prediction)
    while share and count < MOST:
        count *= 2
        strategy = "" if prediction.work.fsdp2 else " --set parallel.strategy=fsdp2"
        times = count // prediction.cluster.count
        words = f"--gpus {count}x{gpu.name}{serve_words(times * prediction.serve)}{strategy}"
        yield Change("gpus", words, with_gpus(gpu.name, count, True))
    for other in sorted(GPUS.values(), key=lambda other: other.gib):
        if other.gib > gpu.gib:
            words = f"--gpus {prediction.cluster.count}x{other.name}{serve_words(prediction.serve)}"
            yield Change("gpus", words, with_gpus(other.name, prediction.cluster.count, prediction.work.fsdp2))


def may_share(prediction: Prediction) -> bool:
    """Whether fsdp2 is allowed: adapters are trained with ddp."""
    return prediction.sizes.trained == prediction.sizes.weights


def serve_words(serve: int) -> str:
    """How the accelerators that only generate are asked for."""
    return f" --serve {serve}" if serve else ""


def engine_share(prediction: Prediction) -> float:
    """The largest share of memory that the trainer leaves the engine, in hundredths."""
    memory, parts = prediction.memory, prediction.memory.phases["rollout"]
    state = parts.get("weights", 0.0) + parts.get("optimizer", 0.0)
    return max(0.01, int(100 * (memory.limit - state) / prediction.cluster.gpu.gib) / 100)


def with_work(**changes: Any) -> Callable[[Prediction], Prediction]:
    """The same with other numbers in the recipe."""
    return lambda p: replace(p, work=replace(p.work, **changes))


def with_tensor(tensor: int) -> Callable[[Prediction], Prediction]:
    """The same with engines over so many accelerators."""
    return lambda p: replace(p, cluster=replace(p.cluster, tensor=tensor))


def narrower(width: int) -> Callable[[Prediction], Prediction]:
    """The same with responses of the same shape at a smaller width."""

    def change(p: Prediction) -> Prediction:
        work = replace(p.work, longest=p.work.longest - p.lengths.width + width)
        part = p.lengths.width // width
        return replace(p, work=work, lengths=ResponseLengths(p.lengths.alive[::part][:width]))

    return change


def with_gpus(name: str, count: int, fsdp2: bool) -> Callable[[Prediction], Prediction]:
    """The same on others."""
    return lambda p: replace(
        p,
        cluster=replace(p.cluster, gpu=GPUS[name], count=count),
        work=replace(p.work, fsdp2=fsdp2),
        serve=p.serve * count // p.cluster.count,
    )
