"""The kinds of mathematical problems by name: frozen dataclasses whose fields are the options of [env]."""

from typing import Any

from pmdkit.envs.math.arithmetic import Arithmetic
from pmdkit.envs.math.dapo import DapoMath
from pmdkit.envs.math.file import GSM8K, HendrycksMath, MathFile
from pmdkit.envs.math.shipped import AIME24, AIME25

MATH_KINDS: dict[str, Any] = {
    "arithmetic": Arithmetic,
    "file": MathFile,
    "dapo-math": DapoMath,
    "aime24": AIME24,
    "aime25": AIME25,
    "math": HendrycksMath,
    "gsm8k": GSM8K,
}
