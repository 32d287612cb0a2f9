"""The file of a recorded step: tensors in safetensors, everything else as JSON in its header. One file, one rename.

What the fields mean is in docs/use/replay.md. Who fills them is recorder.py.
"""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save
from safetensors.torch import load
from torch import Tensor

from pmdkit.errors import UsageError
from pmdkit.recording.narrow import narrow, widen

FORMAT = 1
KEY = "pmdkit"  # the only key of the header: safetensors writes several in random order
TOKENS = ("responses", "logp_old", "logp_engine", "logp_ref", "logp_seen", "logp_after", "correction")
MACHINES = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True)
class Recording:
    """One step: what was drawn, what it earned, and the log-probabilities by who computed them and when.

    Attributes:
        about: JSON values: step, tier, env, objective, schedule, updates, and what a tier adds.
        mask: [N, T] boolean, True on response tokens.
        tensors: by name. Those in TOKENS may be [n, T], one number per token of the first n rows, 0 off the mask.
    """

    about: dict[str, Any]
    mask: Tensor
    tensors: dict[str, Tensor] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def get(self, name: str) -> Tensor | None:
        """A tensor, or None where it was not recorded."""
        return self.tensors.get(name)


def encode(recording: Recording) -> bytes:
    """The file's bytes; the same recording gives the same bytes."""
    mask = recording.mask.numpy()
    flat = {"length": mask.sum(1, dtype=np.int64)}
    places = None if mask.all() else np.flatnonzero(mask)
    if places is not None and (mask[:, 1:] > mask[:, :-1]).any():
        flat["mask"] = mask  # tokens that do not stand at the beginning of the row
    rows: dict[str, int] = {}
    for name, tensor in recording.tensors.items():
        flat[name] = tensor.detach().cpu().numpy()
        if name in TOKENS and tensor.ndim == 2:  # a number per token: one response after another, those of the mask
            rows[name] = len(tensor)
            flat[name] = flat[name].reshape(-1)
            if places is not None:
                flat[name] = flat[name].take(places[: np.searchsorted(places, tensor.numel())])
    stored, how = {}, {}
    for name in sorted(flat):
        stored[name], how[name] = narrow(flat[name])
        if name in rows:
            how[name]["rows"] = rows[name]
    about = to_json(recording.about | {"format": FORMAT, "columns": mask.shape[1], "tensors": how})
    header = f'{{"about":{about},"sha256":"{checksum(about, stored)}"}}'
    return save(stored, {KEY: header})


def decode(data: bytes, where: str) -> Recording:
    """A recording from the bytes of a file.

    Raises:
        UsageError: the file is truncated, damaged, of another version, or no recording.
    """
    try:
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        header = json.loads(header["__metadata__"][KEY])
        about, wanted = header["about"], header["sha256"]
    except (ValueError, KeyError, TypeError) as problem:
        raise UsageError(
            f"{where} is no recording of a step ({len(data)} bytes, its header cannot be read); it is truncated, or "
            "another program's: record the step again, or take another with --step"
        ) from problem
    if about.get("format") != FORMAT:
        raise UsageError(
            f"{where} is a recording of format {about.get('format')}; this pmdkit reads format {FORMAT}: "
            "replay it with the version in the run's env.json, or record the step again"
        )
    try:
        stored = load(data)
    except SafetensorError as problem:
        raise UsageError(
            f"{where} is truncated ({len(data)} bytes, its tensors need more); record the step again, or take another "
            "with --step"
        ) from problem
    numbers = {name: tensor.reshape(-1).view(torch.uint8).numpy() for name, tensor in stored.items()}
    if checksum(to_json(about), numbers) != wanted:
        raise UsageError(f"{where} does not match its checksum; it was changed or damaged: record the step again")
    how = about.pop("tensors")
    flat = {name: widen(tensor, how[name]) for name, tensor in stored.items()}
    length = flat.pop("length")
    mask = flat.pop("mask", torch.arange(about.pop("columns")) < length[:, None])
    return Recording(about, mask, {name: spread(x, mask, how[name].get("rows")) for name, x in flat.items()})


def spread(x: Tensor, mask: Tensor, rows: int | None) -> Tensor:
    """[n, T] from the tokens of the first n rows; whatever is not per token stays as it is."""
    return x if rows is None else x.new_zeros(mask[:rows].shape).masked_scatter(mask[:rows], x)


def checksum(about: str, stored: dict[str, NDArray[Any]]) -> str:
    """Of everything in the file but the checksum itself."""
    digest = hashlib.sha256(about.encode())
    for name in sorted(stored):
        digest.update(stored[name].reshape(-1).data)
    return digest.hexdigest()


def to_json(value: Any) -> str:
    """JSON for machines: one line, keys in order, NaN refused."""
    return MACHINES.encode(value)
