"""A recipe's batch sizes as configuration keys of accelerate, TRL or verl: `export("verl", spec, prediction)`.

Batch sizes, lengths, optimizer and engine are carried over. The objective is not: those frameworks have no key for it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from pmdkit.errors import UsageError, unknown
from pmdkit.specs import LLMSpec
from pmdkit_lab.planner.hardware import NODE
from pmdkit_lab.planner.predict import Prediction, engine_share


@dataclass(frozen=True)
class BatchSizes:
    """The batch sizes of a step on a cluster, as whole numbers.

    Attributes:
        prompts, group: P and G.
        ministeps, passes: their product is the number of updates per step.
        rows: responses of one ministep on one accelerator.
        micro: responses in one forward pass, for frameworks that count rows rather than tokens.
    """

    prompts: int
    group: int
    ministeps: int
    passes: int
    rows: int
    micro: int

    @property
    def accumulate(self) -> int:
        """Forward passes of one ministep on one accelerator."""
        return self.rows // self.micro


def batch_of(prediction: Prediction, framework: str) -> BatchSizes:
    """The batch sizes of a prediction, in whole numbers.

    Raises:
        UsageError: the prompts do not divide evenly into ministeps, or a ministep's responses among the accelerators.
            pmdkit trains such recipes; the other frameworks do not.
    """
    work, count = prediction.work, prediction.trainers.count
    prompts = round(work.prompts)
    if prompts % work.ministeps:
        raise UsageError(
            f"{prompts} prompts do not divide into {work.ministeps} ministeps; {framework} needs whole ministeps: "
            "change --prompts or --ministeps"
        )
    together = prompts // work.ministeps * work.group
    if together % count:
        raise UsageError(
            f"{together} responses per ministep do not divide evenly over {count} accelerators; {framework} needs as "
            "many on each: change --prompts, --group, --ministeps"
            + (", --serve or --gpus" if prediction.serve else " or --gpus")
        )
    rows = together // count
    most = max(1, work.token_budget // work.longest)  # rows are padded to the longest
    micro = max(size for size in range(1, rows + 1) if rows % size == 0 and size <= most)
    return BatchSizes(prompts, work.group, work.ministeps, work.passes, rows, micro)


@dataclass(frozen=True)
class Keys:
    """The configuration keys for another framework, with a note on each key that is easily misread.

    Attributes:
        values: values by key, in reading order; a dict is a nested table in YAML.
        yaml: whether the keys are written as a YAML file of `key: value` rather than as overrides `key=value`.
        program: settings that belong in the user's own program and have no key in the file.
        words: what a key counts, where its name is misleading.
        checks: products that must hold, written out.
        missing: what is not carried over.
        version: the release of the framework that these keys belong to.
    """

    values: dict[str, object]
    yaml: bool = False
    program: dict[str, object] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    checks: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    version: str = ""


def lines(keys: Keys) -> Iterator[str]:
    """The keys as lines for a file or a command line, with everything else after a #."""
    for key, value in keys.values.items():
        said = f"  # {keys.words[key]}" if key in keys.words else ""
        if isinstance(value, dict):
            yield f"{key}:{said}"
            yield from (f"  {inner}: {as_text(held, True)}" for inner, held in value.items())
        else:
            yield f"{key}{': ' if keys.yaml else '='}{as_text(value, keys.yaml)}{said}"
    for key, value in keys.program.items():
        yield f"# in your own program: {key}={as_text(value)}" + (f": {keys.words[key]}" if key in keys.words else "")
    yield from (f"# {check}" for check in keys.checks)
    yield from (f"# not carried over: {left}" for left in keys.missing)


def as_text(value: object, yaml: bool = False) -> str:
    """A value as written on a command line or in YAML. YAML would read no as false and 1e-06 as a string."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        short = repr(value)
        return short.replace("e", ".0e") if yaml and "e" in short and "." not in short else short
    return f'"{value}"' if yaml and value in ("no", "yes", "on", "off", "NO") else str(value)


def accelerate_keys(spec: LLMSpec, prediction: Prediction) -> Keys:
    """An accelerate configuration file, as in llm/accelerate/*.yaml; pmdkit itself runs under them."""
    batch, count = batch_of(prediction, "accelerate"), prediction.trainers.count
    machines = -(-count // NODE)
    kind = "NO" if count == 1 else "FSDP" if prediction.work.fsdp2 else "MULTI_GPU"
    values: dict[str, object] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": kind,
        "num_machines": machines,
        "num_processes": count,
        "machine_rank": 0,
        "mixed_precision": "no",
        "use_cpu": False,
        "debug": False,
    }
    if kind == "FSDP":
        values["fsdp_config"] = {"fsdp_version": 2}
    step = f"{batch.micro} x {batch.accumulate} x {count} = {batch.micro * batch.accumulate * count}"
    missing = ["ministeps: accelerate does not know about rollout batches; the training loop does"]
    if machines > 1:
        missing.append("main_process_ip and main_process_port: those of the machine with rank 0")
    if prediction.serve:
        missing.append(f"{prediction.serve} accelerators that serve: accelerate starts the others")
    return Keys(
        values,
        yaml=True,
        program={"gradient_accumulation_steps": batch.accumulate},
        words={
            "num_processes": "accelerators of all machines together, not of one",
            "mixed_precision": "[model] dtype decides; weights and optimizer stay float32",
            "machine_rank": "a different one on each machine",
            "gradient_accumulation_steps": (
                f"forward passes of one update, of {batch.micro} responses padded to {prediction.work.longest} tokens "
                "each; pmdkit cuts ministeps by update.token_budget instead"
            ),
        },
        checks=[f"responses per pass x gradient_accumulation_steps x num_processes = {step} responses per ministep"],
        missing=missing,
        version="accelerate 1.15",
    )


def trl_keys(spec: LLMSpec, prediction: Prediction) -> Keys:
    """Keys of TRL's GRPOConfig: same prompts, responses and updates per rollout batch."""
    batch, count = batch_of(prediction, "TRL"), prediction.trainers.count
    assert spec.rollout is not None
    assert spec.update is not None
    per_generation = batch.accumulate * batch.ministeps
    values: dict[str, object] = {
        "per_device_train_batch_size": batch.micro,
        "gradient_accumulation_steps": batch.accumulate,
        "steps_per_generation": per_generation,
        "num_generations": batch.group,
        "num_iterations": batch.passes,
        "max_steps": spec.schedule.steps * batch.ministeps * batch.passes,
        "max_completion_length": spec.rollout.width,
        "temperature": spec.rollout.temperature,
        "learning_rate": spec.schedule.lr,
        "weight_decay": spec.update.weight_decay,
        "adam_beta1": spec.update.betas[0],
        "adam_beta2": spec.update.betas[1],
        "max_grad_norm": spec.update.clip,
        "activation_checkpointing": prediction.work.checkpointing,
        "bf16": prediction.sizes.width_bytes == 2,
        "beta": 0.0,
        "use_vllm": True,
        "vllm_mode": "server" if prediction.serve else "colocate",
        "vllm_tensor_parallel_size": prediction.cluster.tensor,
    }
    ministep = batch.micro * count * batch.accumulate
    return Keys(
        values,
        yaml=True,
        words={
            "per_device_train_batch_size": "responses, not prompts, in one forward pass of one accelerator, padded",
            "gradient_accumulation_steps": "forward passes of one update: a ministep",
            "steps_per_generation": "forward passes, not updates, per rollout batch: ministeps x accumulation",
            "num_generations": "responses to each prompt, G; divides the responses of a rollout batch",
            "num_iterations": "passes over a rollout batch",
            "max_steps": "updates, not rollout batches",
        },
        checks=[
            f"per_device x processes x accumulation = {batch.micro} x {count} x {batch.accumulate} = {ministep} "
            "responses per ministep",
            f"per_device x processes x steps_per_generation = {batch.micro} x {count} x {per_generation} = "
            f"{batch.micro * count * per_generation} responses per rollout batch = {batch.prompts} prompts x "
            f"{batch.group}",
        ],
        missing=[
            f"the objective {spec.objective['name']}: give these to PMDConfig of pmdkit.adapters.trl, with "
            "objective and tau, and train with its PMDTrainer",
            f"rollout.max_prompt {spec.rollout.max_prompt}: drop longer prompts from the data set yourself",
            *(
                [f"rollout.lag {prediction.work.lag}: GRPOTrainer waits for its rollouts"]
                if prediction.work.lag
                else []
            ),
        ],
        version="TRL 1.16 with transformers 5, GRPOConfig",
    )


ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"


def verl_keys(spec: LLMSpec, prediction: Prediction) -> Keys:
    """Overrides for verl's main_ppo: same prompts, responses and updates per rollout batch, with token budgets."""
    apart = prediction.serve or prediction.work.lag
    prediction = replace(prediction, serve=0, work=replace(prediction.work, lag=0))
    batch, cluster = batch_of(prediction, "verl"), prediction.cluster
    assert spec.rollout is not None
    assert spec.update is not None
    nodes, per_node = -(-cluster.count // NODE), min(NODE, cluster.count)
    if nodes * per_node != cluster.count:
        raise UsageError(
            f"--gpus {cluster.count} does not fill whole machines of {NODE}; verl needs the same number in each"
        )
    mini = batch.prompts // batch.ministeps
    values: dict[str, object] = {
        "data.train_batch_size": batch.prompts,
        "data.max_prompt_length": spec.rollout.max_prompt,
        "data.max_response_length": spec.rollout.width,
        "actor_rollout_ref.model.path": getattr(spec.model, "path", None) or "your-model",
        "actor_rollout_ref.model.use_remove_padding": True,
        "actor_rollout_ref.model.enable_gradient_checkpointing": prediction.work.checkpointing,
        f"{ROLLOUT}.name": "vllm",
        f"{ROLLOUT}.n": batch.group,
        f"{ROLLOUT}.temperature": spec.rollout.temperature,
        f"{ROLLOUT}.tensor_model_parallel_size": cluster.tensor,
        f"{ROLLOUT}.gpu_memory_utilization": max(0.05, int(20 * engine_share(prediction)) / 20),  # in twentieths
        f"{ACTOR}.strategy": "fsdp2",
        f"{ACTOR}.ppo_mini_batch_size": mini,
        f"{ACTOR}.ppo_epochs": batch.passes,
        f"{ACTOR}.use_dynamic_bsz": True,
        f"{ACTOR}.ppo_max_token_len_per_gpu": max(prediction.work.token_budget, prediction.work.longest),
        f"{ACTOR}.use_kl_loss": False,
        f"{ACTOR}.optim.lr": spec.schedule.lr,
        f"{ACTOR}.optim.weight_decay": spec.update.weight_decay,
        f"{ACTOR}.optim.clip_grad": spec.update.clip,
        "algorithm.use_kl_in_reward": False,
        "trainer.nnodes": nodes,
        "trainer.n_gpus_per_node": per_node,
        "trainer.total_training_steps": spec.schedule.steps,
    }
    return Keys(
        values,
        words={
            "data.train_batch_size": "prompts, not responses, of a rollout batch",
            f"{ROLLOUT}.n": "responses to each prompt, G",
            f"{ROLLOUT}.gpu_memory_utilization": "weights and keys and values of the engine, as a share of all memory",
            f"{ACTOR}.ppo_mini_batch_size": "prompts of one update; verl multiplies by rollout.n and divides by GPUs",
            f"{ACTOR}.ppo_epochs": "passes over a rollout batch",
            f"{ACTOR}.ppo_max_token_len_per_gpu": "tokens of one forward pass; at least one longest sequence",
            "trainer.total_training_steps": "rollout batches, not updates",
        },
        checks=[
            f"train_batch_size / ppo_mini_batch_size = {batch.prompts} / {mini} = {batch.ministeps} updates per "
            f"rollout batch; staleness {prediction.staleness} for the last",
            f"ppo_mini_batch_size x rollout.n / GPUs = {mini} x {batch.group} / {cluster.count} = {batch.rows} "
            "responses of a ministep on each",
        ],
        missing=[
            f"the objective {spec.objective['name']}: +pmd=mean, part or any of pmdkit.adapters.verl, and "
            "actor.policy_loss.pmd_tau (llm/verl/ has complete launch commands)",
            *(
                ["separate servers and a lag: main_ppo generates and trains in turns on all accelerators"]
                if apart
                else []
            ),
        ],
        version="verl 0.9, main_ppo",
    )


FRAMEWORKS = {"accelerate": accelerate_keys, "trl": trl_keys, "verl": verl_keys}


def export(name: str, spec: LLMSpec, prediction: Prediction) -> Keys:
    """The keys for the named framework, with what its batch sizes count."""
    if name not in FRAMEWORKS:
        raise UsageError("--as: " + unknown("framework", name, FRAMEWORKS))
    return FRAMEWORKS[name](spec, prediction)
