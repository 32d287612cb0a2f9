"""`pmdkit export RUN STEP DIR`: a checkpoint in Hugging Face layout; `pmdkit export starter DIR`: the starter model."""

import sys
from functools import partial
from pathlib import Path

from pmdkit.cli.options import Flag, Whole
from pmdkit.cli.output import print_json
from pmdkit.errors import UsageError


def export(
    run: str,
    step_or_folder: str,
    folder: Path | None = None,
    /,
    *,
    size: str = "starter",
    seed: Whole = 0,
    json: Flag = False,
) -> None:
    """Write the model of a checkpoint in Hugging Face layout, or build the starter model: pmdkit export starter DIR.

    A checkpoint: pmdkit export RUN STEP DIR. Every file is compared with its checksum before it is copied. Weights are
    float32, as they were trained; adapters are merged.

    Args:
        run: folder of a run of a language model; or the word starter.
        step_or_folder: step of one of the run's checkpoints; for the starter the new folder.
        folder: new folder to write.
        size: of the starter: starter (a tiny Qwen2), starter-moe (a tiny Qwen3-MoE) or starter-100m (for a GPU).
        seed: of the starter: seed of weights, lessons and measurement.
        json: print one JSON value.
    """
    if run == "starter" and folder is None:  # built and taught, about half a minute on one core; no download
        import torch

        from pmdkit.llm.recipe_checks import check_requirements

        check_requirements()
        torch.set_num_threads(1)
        from pmdkit.llm.export import export_starter

        note = partial(print, file=sys.stderr, flush=True)
        made = export_starter(Path(step_or_folder), size, seed, 0.3, note)
        if json:
            print_json(made)
            return
        rate = f"pass rate {made['pass_rate']:.3f} on {made['problems']} held-out problems"
        print(f"{made['out']}: {made['weights']:,} weights, {rate}, {made['seconds']:.0f} s")
        return
    from pmdkit.llm.export import export_step

    if folder is None or not step_or_folder.isdigit():
        raise UsageError(f"export got {run} {step_or_folder}; expected RUN STEP DIR, or: starter DIR")
    step = int(step_or_folder)
    names = export_step(Path(run), step, folder)
    if json:
        print_json({"run": run, "step": step, "folder": str(folder), "files": names})
    else:
        print(f"{folder}: {', '.join(names)}")
