"""What has run on a GPU, in one sentence, from the records: pages include it, and the README says the same."""

import json
from pathlib import Path

SENTENCE = (
    "Single GPUs have seen {alone} runs of `smollm2` (H100), {compared} more in [a comparison of objectives]"
    "({docs}use/smollm2.md) (H200), and {steps} steps of `one-gpu` with random weights (H200)."
)


def on_a_gpu(results: Path, docs: str = "../") -> str:
    """The sentence; `docs` is the way to docs/ from the page that shows it."""
    names = ("smollm2", "smollm2-objectives", "gpu-one-gpu")
    three, objectives, one_gpu = (json.loads((results / f"{name}.json").read_text(encoding="utf-8")) for name in names)
    alone = [run for run in three if run["device"] == "H100"]
    compared = [run for run in objectives["runs"] if "device" not in run]  # the others were on a CPU
    return SENTENCE.format(alone=len(alone), compared=len(compared), steps=len(one_gpu["metrics"]), docs=docs)
