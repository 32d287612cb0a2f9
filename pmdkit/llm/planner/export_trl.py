"""Keys of TRL's GRPOConfig for this recipe on these accelerators."""

from pmdkit.llm.planner.batch import batch_of
from pmdkit.llm.planner.predict import Prediction
from pmdkit.llm.planner.words import Keys
from pmdkit.spec import Spec


def keys(spec: Spec, prediction: Prediction) -> Keys:
    """Same prompts, responses and updates per rollout batch."""
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
    )
