"""The kinds of bandit by name: frozen dataclasses whose fields are the options of [env] and whose build() makes one."""

from typing import Any

from pmdkit.envs.kinds.graded import Graded
from pmdkit.envs.kinds.needle import Needle
from pmdkit.envs.kinds.noisy_verifier import NoisyVerifier
from pmdkit.envs.kinds.pass_rates import PassRates
from pmdkit.envs.kinds.shared_features import SharedFeatures
from pmdkit.envs.kinds.two_hills import TwoHills

KINDS: dict[str, Any] = {
    "needle": Needle,
    "two-hills": TwoHills,
    "graded": Graded,
    "noisy-verifier": NoisyVerifier,
    "shared-features": SharedFeatures,
    "pass-rates": PassRates,
}

__all__ = ["KINDS", "Graded", "Needle", "NoisyVerifier", "PassRates", "SharedFeatures", "TwoHills"]
