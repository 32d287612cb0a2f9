"""Export a checkpoint to a folder in Hugging Face layout, merging its shards one file of weights at a time."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from torch import Tensor

from pmdkit.errors import ResumeRefused, UsageError
from pmdkit.observe import checkpoint, files, shards
from pmdkit.observe.manifest import PARTS, Damaged, check_origin, read_manifest, run_identity
from pmdkit.observe.run_folder import RunFolder
from pmdkit.observe.shards import StoredTensor

FILE_BYTES = 2 * 10**9  # of one file of weights, which is in memory while it is written


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
    try:
        manifest = read_manifest(path)
        check_origin(manifest, int(path.name.removeprefix("step-")), run_identity(path.absolute().parent))
        others = {name for part in PARTS for name in manifest.files_of(part)} | {"state.json"}
        beside = sorted(manifest.sha256.keys() - others)
        if "config.json" not in beside:
            raise UsageError(
                f"{path} is not the checkpoint of a language model; only runs of `pmdkit llm` are exported"
            )
        contents = {name: manifest.read(name) for name in beside}
        stored = manifest.open_part("model")
    except Damaged as problem:
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
    held: list[dict[str, tuple[int, tuple[int, ...]]]] = []
    for number, tensors in enumerate(grouped(stored), 1):
        files.write(folder / f".{number}.part", checkpoint.encode_tensors(tensors), files.PUBLIC)
        held.append({name: (0, tuple(tensor.shape)) for name, tensor in tensors.items()})
    # the names of the files hold their number, which is known only now
    names = [shards.shard_name("model", number, len(held)) for number in range(1, len(held) + 1)]
    if len(names) == 1:
        names = ["model.safetensors"]
    for number, name in enumerate(names, 1):
        (folder / f".{number}.part").rename(folder / name)
    if len(names) > 1:
        sizes = {name: (folder / name).stat().st_size for name in names}
        index = shards.encode_index(dict(zip(names, held, strict=True)), sizes)
        files.write(folder / shards.index_name("model"), index, files.PUBLIC)
        names.append(shards.index_name("model"))
    return names


def grouped(stored: Mapping[str, StoredTensor]) -> Iterator[dict[str, Tensor]]:
    """The tensors of each file of an export, read one file at a time."""
    group: dict[str, Tensor] = {}
    size = 0
    for name, tensor in stored.items():
        found = tensor.read()
        if group and size + found.nbytes > FILE_BYTES:
            yield group
            group, size = {}, 0
        group[name] = found
        size += found.nbytes
    yield group
