"""An accelerate configuration file for this recipe on these accelerators."""

from pmdkit.llm.planner.batch import batch_of
from pmdkit.llm.planner.gpus import NODE
from pmdkit.llm.planner.predict import Prediction
from pmdkit.llm.planner.words import Keys
from pmdkit.spec import Spec


def keys(spec: Spec, prediction: Prediction) -> Keys:
    """As in llm/accelerate/*.yaml; pmdkit itself runs under them."""
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
    missing = ["ministeps: accelerate does not know rollout batches, the loop does"]
    if machines > 1:
        missing.append("main_process_ip and main_process_port: of the machine with rank 0")
    if prediction.serve:
        missing.append(f"{prediction.serve} accelerators that serve: accelerate starts the others")
    return Keys(
        values,
        yaml=True,
        program={"gradient_accumulation_steps": batch.accumulate},
        words={
            "num_processes": "accelerators of all machines together, not of one",
            "mixed_precision": "[model] dtype decides; weights and optimizer stay float32",
            "machine_rank": "another one on each machine",
            "gradient_accumulation_steps": (
                f"forward passes of one update, of {batch.micro} responses padded to {prediction.work.longest} tokens "
                "each; pmdkit cuts ministeps by update.token_budget instead"
            ),
        },
        checks=[f"responses per pass x gradient_accumulation_steps x num_processes = {step} responses per ministep"],
        missing=missing,
    )
