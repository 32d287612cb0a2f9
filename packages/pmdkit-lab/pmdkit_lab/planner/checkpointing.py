"""model.checkpointing = "auto": whether the activations of a micro-batch fit beside all else that an update holds."""

from dataclasses import replace

from pmdkit.specs import LLMSpec
from pmdkit_lab.planner.cluster import Cluster
from pmdkit_lab.planner.data_sheets import GPUS
from pmdkit_lab.planner.predict import Prediction
from pmdkit_lab.planner.workload import lengths, serving, sizes_of, work_of

NEAR = 0.85  # a plan is at least this share of the rehearsal, which tests/planner/test_memory.py holds


def must_recompute(prediction: Prediction) -> tuple[bool, str]:
    """Whether activations have to be recomputed, whatever the prediction itself does with them, and why, in GiB.

    They are kept if, without checkpointing,

        weights + optimizer + gradients + head + activations <= 0.85 (0.9 total - what the engine keeps meanwhile).

    0.9 is the share of the memory that any plan may fill, and 0.85 the error of the plan; the engine's part is exact.
    """
    memory = replace(prediction, work=replace(prediction.work, checkpointing=False)).memory
    parts = dict(memory.phases["update"])
    activations = parts.pop("activations")
    engine = sum(parts.pop(name, 0.0) for name in ("engine weights", "KV cache"))
    room = NEAR * (memory.limit - engine) - sum(parts.values())
    on, gib = activations > room, f"activations of {activations:.1f} GiB"
    verdict = f"on: {gib} do not fit" if on else f"off: {gib} fit"
    return on, f"checkpointing: auto, {verdict} {max(room, 0.0):.1f}"


def decide(spec: LLMSpec, gib: float) -> tuple[bool, str]:
    """`must_recompute` for a run of a resolved recipe on accelerators of this memory."""
    span, servers = serving(spec)
    gpu = replace(GPUS["H100"], name="accelerator", gib=gib)  # of the rest of a data sheet, memory asks nothing
    place = Cluster(gpu, spec.parallel.processes + servers, span)
    shape = lengths("direct", spec.rollout.width)  # which an update does not depend on
    return must_recompute(Prediction(sizes_of(spec), work_of(spec), shape, place, serve=servers))
