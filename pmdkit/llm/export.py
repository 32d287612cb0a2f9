"""Export a checkpoint to a folder in Hugging Face layout, without what only a resume needs."""

import shutil
from pathlib import Path

from pmdkit.errors import ResumeRefused, UsageError
from pmdkit.llm.model_folder import refuse_code
from pmdkit.observe import checkpoint, files
from pmdkit.observe.checkpoint import PARTS, Damaged, check_origin, read_manifest, run_identity
from pmdkit.observe.run_folder import RunFolder


def export_step(run: Path, step: int, out: Path) -> list[str]:
    """Write the model of a checkpoint to a new folder that transformers and vLLM load; return the names of its files.

    Completely, or not at all: what is exported is compared with its checksums before anything is written.

    Raises:
        UsageError: there is no such run or checkpoint, it asks for code, or `out` exists.
        ResumeRefused: the checkpoint is damaged.
    """
    folder = RunFolder(run)
    if not folder.started:
        raise UsageError(f"{run} is not the folder of a run; give the --out of one")
    there = checkpoint.steps(folder.checkpoints)
    if step not in there:
        held = f"it has those of steps {', '.join(map(str, there))}" if there else "it has none"
        raise UsageError(f"{run} has no checkpoint of step {step}; {held}")
    if out.exists() or out.is_symlink():
        raise UsageError(f"{out} exists; give a new folder")
    path = folder.checkpoints / f"step-{step}"
    try:
        manifest = read_manifest(path)
        check_origin(manifest, step, run_identity(folder.checkpoints.absolute()))
        others = {f"{part}.safetensors" for part in PARTS} | {"state.json"}
        beside = sorted(manifest.sha256.keys() - others)
        if "config.json" not in beside:
            raise UsageError(
                f"{path} does not hold a language model; only runs of `pmdkit llm` whose weights are here are exported"
            )
        names = sorted([*beside, "model.safetensors"])
        for name in names:
            manifest.check(name)
    except Damaged as problem:
        raise ResumeRefused(
            f"checkpoint {path} is damaged ({problem}); nothing was written: export another step"
        ) from problem
    refuse_code(path)
    aside = out.with_name(f".{out.name}.part")
    files.remove(aside)
    try:
        aside.mkdir(parents=True)
        for name in names:
            shutil.copyfile(path / name, aside / name)
            files.sync(aside / name)
        files.sync(aside)
        aside.rename(out)
    except OSError:
        files.remove(aside)
        raise
    files.sync(out.parent)
    return names
