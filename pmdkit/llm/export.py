"""Export a checkpoint to a folder in Hugging Face layout, merging its shards a few megabytes at a time."""

from collections.abc import Mapping
from pathlib import Path

from pmdkit.errors import ResumeRefused, UsageError
from pmdkit.observe import checkpoint, files, shards
from pmdkit.observe.run_folder import RunFolder
from pmdkit.observe.shards import StoredTensor

FILE_BYTES = 5 * 10**9  # of one file of weights, as in transformers; larger models get several files with an index
PARTS = (*checkpoint.WEIGHTS, "optimizer")


def export_step(run: Path, step: int, out: Path) -> list[str]:
    """Write the model of a checkpoint to a new folder that transformers and vLLM load; return the names of its files.

    The files that are exported are compared with their checksums before anything is written.

    Raises:
        UsageError: there is no such run or checkpoint, or `out` exists.
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
    return export(folder.checkpoints / f"step-{step}", out)


def export(path: Path, out: Path) -> list[str]:
    """Write the model of a checkpoint folder to `out`, replacing what is there: completely, or not at all."""
    step = int(path.name.removeprefix("step-"))
    try:
        manifest = checkpoint.read_manifest(path)
        checkpoint.check_origin(manifest, step, checkpoint.run_identity(path.absolute().parent))
        checkpoint.check_named(manifest)
        others = {name for part in PARTS for name in manifest.files_of(part)} | {"state.json"}
        beside = sorted(manifest.sha256.keys() - others)
        if "config.json" not in beside:
            raise UsageError(
                f"{path} is not the checkpoint of a language model; only runs of `pmdkit llm` are exported"
            )
        for name in manifest.files_of("model"):
            manifest.check(name)
        contents = {name: manifest.read(name) for name in beside}
        with checkpoint.decoding():
            stored = checkpoint.stored_part(manifest, "model")
    except checkpoint.Damaged as problem:
        raise ResumeRefused(
            f"checkpoint {path} is damaged ({problem}); nothing was written: export another step"
        ) from problem
    aside = out.with_name(f".{out.name}.part")
    files.remove(aside)
    try:
        aside.mkdir(parents=True)
        for name, data in contents.items():
            files.write(aside / name, data, files.PUBLIC)
        names = write_weights(aside, stored)
        files.sync(aside)
        files.remove(out)
        aside.rename(out)
    except OSError:
        files.remove(aside)
        raise
    files.sync(out.parent)
    return sorted((*contents, *names))


def write_weights(folder: Path, stored: Mapping[str, StoredTensor]) -> list[str]:
    """Write one model.safetensors, or several files with an index if the weights do not fit in one."""
    groups: list[dict[str, StoredTensor]] = [{}]
    room = FILE_BYTES
    for name, tensor in stored.items():
        size = tensor.row_bytes * (tensor.shape[0] if tensor.shape else 1)
        if size > room and groups[-1]:
            groups.append({})
            room = FILE_BYTES
        groups[-1][name] = tensor
        room -= size
    if len(groups) == 1:
        shards.write_stored(folder / "model.safetensors", groups[0])
        return ["model.safetensors"]
    names = [shards.shard_name("model", number, len(groups)) for number in range(1, len(groups) + 1)]
    sizes = {name: shards.write_stored(folder / name, group)[1] for name, group in zip(names, groups, strict=True)}
    held = {
        name: {key: (0, tensor.shape) for key, tensor in group.items()}
        for name, group in zip(names, groups, strict=True)
    }
    files.write(folder / shards.index_name("model"), shards.encode_index(held, sizes), files.PUBLIC)
    return [*names, shards.index_name("model")]
