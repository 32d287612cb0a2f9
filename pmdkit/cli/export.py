"""`pmdkit export RUN STEP DIR`: the model of a checkpoint as a folder that transformers and vLLM load."""

from pathlib import Path

from pmdkit.cli.options import Flag, RunPath
from pmdkit.cli.output import print_json


def export(run: RunPath, step: int, folder: Path, /, *, json: Flag = False) -> None:
    """Write the model of a checkpoint in Hugging Face layout: weights, configuration, tokenizer, model card.

    The shards of several processes are put together, a few megabytes of them in memory at a time. Every file is
    compared with its checksum before it is copied. Weights are float32, as they were trained; adapters are merged.

    Args:
        run: folder of a run of a language model.
        step: of one of its checkpoints.
        folder: new folder to write.
        json: print one JSON value.
    """
    from pmdkit.llm.export import export_step

    names = export_step(run, step, folder)
    if json:
        print_json({"run": str(run), "step": step, "folder": str(folder), "files": names})
    else:
        print(f"{folder}: {', '.join(names)}")
