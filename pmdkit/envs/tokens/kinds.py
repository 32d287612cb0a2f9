"""The token tasks by name: frozen dataclasses whose fields are the options of [env]."""

from typing import Any

from pmdkit.envs.tokens.addition import Addition
from pmdkit.envs.tokens.countdown import Countdown
from pmdkit.envs.tokens.maze import Maze
from pmdkit.envs.tokens.modular_sum import ModularSum
from pmdkit.envs.tokens.parity import Parity
from pmdkit.envs.tokens.sequences import Copy, Reverse, Sort

KINDS: dict[str, Any] = {
    "modular-sum": ModularSum,
    "copy": Copy,
    "reverse": Reverse,
    "parity": Parity,
    "sort": Sort,
    "addition": Addition,
    "countdown": Countdown,
    "maze": Maze,
}
