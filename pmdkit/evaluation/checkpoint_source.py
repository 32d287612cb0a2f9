"""The model for `pmdkit eval`: a run, a run's checkpoint, or another model; checked, not yet loaded."""

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from pmdkit import untrusted
from pmdkit.envs.math.readers import HUB_NAME
from pmdkit.errors import ResumeRefused, UsageError
from pmdkit.observe import checkpoint
from pmdkit.observe.checkpoint import MANIFEST, Damaged, check_origin, read_manifest, run_identity
from pmdkit.plugins import NOTHING, Trusted
from pmdkit.resolve import StoredRun, read_run
from pmdkit.specs import LLMSpec

NOT_NEEDED = {"optimizer.safetensors", "reference.safetensors", "state.json"}


@dataclass(frozen=True)
class CheckpointSource:
    """A language model to evaluate.

    Attributes:
        place: the source for transformers, a folder or the name of a model on the hub.
        weights: SHA-256 of the weights, of its shards' checksums, or the name itself for a model on the hub.
        spec, step: of the run and the checkpoint that it comes from.
    """

    place: str
    weights: str
    spec: LLMSpec | None = None
    step: int | None = None
    warnings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """A short name, for titles and folders."""
        return self.spec.name if self.spec is not None else Path(self.place).name


def find_source(path: Path, trusted: Trusted = NOTHING) -> CheckpointSource:
    """The language model at a path that is not a run: a run's checkpoint, a model's folder, or a name on the hub.

    Code that the checkpoint's run names must be trusted.
    """
    if not os.path.exists(path) and HUB_NAME.fullmatch(str(path)) and not path.parent.exists():
        return CheckpointSource(str(path), str(path))
    if not os.path.isdir(path) or not os.path.exists(path / "config.json"):  # Path.exists raises for impossible names
        what = "holds no config.json" if os.path.isdir(path) else "is not a folder"
        raise UsageError(f"{path} {what}; expected the --out of a run, or the folder of a model")
    above, numbered = path.absolute().parent, re.fullmatch(r"step-(\d+)", path.name)
    owner = read_run(above.parent, trusted) if numbered and above.name == "checkpoints" else None
    if numbered and owner is not None and owner.spec.tier == "llm":
        return source_of_run(owner, path, int(numbered[1]))
    config = untrusted.read_json(path / "config.json", advice="give the folder of a run or of a model", numbers=False)
    if not isinstance(config, dict) or not {"model_type", "architectures", "auto_map"} & config.keys():
        raise UsageError(f"{path}/config.json is neither that of a run nor that of a model; give the folder of one")
    sums = []
    for weights in sorted(path.glob("*.safetensors")):
        with untrusted.open_file(weights, untrusted.WEIGHTS) as file:
            sums.append(hashlib.file_digest(file, "sha256").hexdigest())
    whole = sums[0] if len(sums) == 1 else hashlib.sha256("\n".join(sums).encode()).hexdigest()
    return CheckpointSource(str(path), whole)


def source_of_run(run: StoredRun, given: Path, only: int | None = None) -> CheckpointSource:
    """The newest checkpoint whose weights are whole, or the one of a given step. Nothing in the folder is changed.

    The optimizer's file, the largest, is not read. A file that the manifest does not name is damage here, since
    transformers would read it too.
    """
    folder, spec = run.folder, run.spec
    assert isinstance(spec, LLMSpec), "the caller has looked at the tier"
    if (url := spec.remote.url) is not None:
        raise UsageError(f"the weights of {folder.path} are on the server at {url}; give a run that has them")
    warnings: list[str] = []
    for step in reversed(checkpoint.steps(folder.checkpoints) if only is None else [only]):
        place = given if only is not None else folder.checkpoints / f"step-{step}"
        try:
            manifest = read_manifest(place)
            check_origin(manifest, step, run_identity(place.absolute().parent))
            for name in manifest.sha256.keys() - NOT_NEEDED:
                manifest.check(name)
            there = {path.name for path in place.iterdir() if not path.name.startswith(".")}
            if strange := sorted(there - manifest.sha256.keys() - {MANIFEST}):
                raise Damaged(f"it holds {strange[0]}, which its manifest does not name")
            return CheckpointSource(str(place), manifest.sha256["model.safetensors"], spec, step, tuple(warnings))
        except Damaged as problem:
            warnings.append(f"checkpoint {place} is damaged ({problem}); an older one is used")
    trouble = "; ".join(warnings) or "none was written yet"
    raise ResumeRefused(f"no loadable checkpoint in {folder.checkpoints} ({trouble}); train first, or --resume")
