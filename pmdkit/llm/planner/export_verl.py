"""Overrides of verl's main_ppo for this recipe on these accelerators."""

from dataclasses import replace

from pmdkit.errors import UsageError
from pmdkit.llm.planner.advice import engine_share
from pmdkit.llm.planner.batch import batch_of
from pmdkit.llm.planner.gpus import NODE
from pmdkit.llm.planner.predict import Prediction
from pmdkit.llm.planner.words import Keys
from pmdkit.spec import Spec

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"


def keys(spec: Spec, prediction: Prediction) -> Keys:
    """Same prompts, responses and updates per rollout batch; token budgets as dynamic batches."""
    apart = prediction.serve or prediction.work.lag
    prediction = replace(prediction, serve=0, work=replace(prediction.work, lag=0))
    batch, cluster = batch_of(prediction, "verl"), prediction.cluster
    assert spec.rollout is not None
    assert spec.update is not None
    nodes, per_node = -(-cluster.count // NODE), min(NODE, cluster.count)
    if nodes * per_node != cluster.count:
        raise UsageError(f"--gpus {cluster.count} is not whole machines of {NODE}; verl needs the same number in each")
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
        f"{ROLLOUT}.gpu_memory_utilization": utilization(prediction),
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
            f"{ACTOR}.ppo_mini_batch_size": "prompts of one update; verl multiplies by rollout.n, divides by GPUs",
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
            "actor.policy_loss.pmd_tau (llm/verl/ has whole launch lines)",
            *(["servers apart and a lag: main_ppo generates and trains in turns on all accelerators"] if apart else []),
        ],
    )


def utilization(prediction: Prediction) -> float:
    """The share of memory for weights and cache that the plan leaves the engine, in twentieths."""
    return max(0.05, int(20 * engine_share(prediction)) / 20)
