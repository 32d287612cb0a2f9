"""The runs of a sweep: every combination of the swept options with every seed."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from typing import Any

from pmdkit.errors import UsageError
from pmdkit.specs.spec import SHORT
from pmdkit.specs.toml import parse_value

SEED = "run.seed"
NAME_LENGTH = 120  # characters of the options in a folder's name; file systems take 255 bytes

Options = dict[str, Any]


@dataclass(frozen=True)
class Trial:
    """One run of a sweep: tier and env as on the command line, and its options by dotted key, including the seed."""

    tier: str
    env: str
    options: Options

    @property
    def name(self) -> str:
        """The name of its folder: readable, and the same for the same options in any sweep."""
        whole = json.dumps([self.tier, self.env, self.options], sort_keys=True)
        short = "-".join(f"{key.rpartition('.')[2]}_{value}" for key, value in sorted(self.options.items()))
        readable = re.sub(r"[^A-Za-z0-9._-]", "", short.removeprefix("name_"))[:NAME_LENGTH]
        return f"{readable}-{hashlib.sha256(whole.encode()).hexdigest()[:8]}"


def expand(
    tier: str, env: str, over: Mapping[str, Sequence[Any]], seeds: Iterable[int], fixed: Mapping[str, Any]
) -> list[Trial]:
    """Every combination of the values in `over`, the last key varying fastest, for every seed.

    Args:
        over: values by dotted key. Keys joined by + move together: {"schedule.prompts+schedule.ministeps":
            [(32, 1), (512, 16)]} is two settings, not four.
        fixed: options that all runs share.
    """
    settings: list[Options] = []
    for values in product(*over.values()):
        joined = zip(over, values, strict=True)  # keys joined by + have as many values
        pairs = (zip(key.split("+"), value if "+" in key else [value], strict=True) for key, value in joined)
        settings.append(dict(chain.from_iterable(pairs)))
    return variants(tier, env, settings, seeds, fixed)


def variants(
    tier: str, env: str, settings: Sequence[Options], seeds: Iterable[int], fixed: Mapping[str, Any]
) -> list[Trial]:
    """Each setting on top of the fixed options, with every seed. All settings of a seed run before the next seed, so
    that whatever slows the machine down affects all settings alike, and an early look is fair."""
    return [Trial(tier, env, {**fixed, **setting, SEED: seed}) for seed in seeds for setting in settings]


def parse_over(pairs: Iterable[str]) -> dict[str, list[Any]]:
    """Parse `key=v1,v2` from the command line; short names become dotted keys, values are read as TOML."""
    over: dict[str, list[Any]] = {}
    for pair in pairs:
        key, separator, text = pair.partition("=")
        if not separator or not key or not text:
            raise UsageError(f"--over got '{pair}'; expected key=v1,v2, such as tau=0.05,0.5")
        keys = [SHORT.get(name, name) for name in key.split("+")]
        taken = "+".join(over).split("+")
        repeated = [name for i, name in enumerate(keys) if name in taken or name in keys[:i]]
        if repeated or SEED in keys:
            word = repeated[0] if repeated else SEED
            raise UsageError(f"--over names {word} twice; expected each option once, and seeds with --seeds")
        rows = []
        for item in text.split(","):
            parts = [parse_value(part) for part in (item.split("+") if len(keys) > 1 else [item])]
            if len(parts) != len(keys):
                raise UsageError(f"--over got '{item}' for {key}; expected {len(keys)} values joined by +")
            rows.append(tuple(parts) if len(keys) > 1 else parts[0])
        over["+".join(keys)] = rows
    return over
