"""A bandit of your own: copy this file, change build(), and name it in a spec as kind = "my.py:MyKind".

Here: dice games. An arm is a number of dice, a context a target, and an arm passes if its dice add up to the target.
"""

from dataclasses import dataclass

import numpy as np

from pmdkit.envs import Bandit


@dataclass(frozen=True)
class OwnBandit:
    """Which number of dice should one throw to hit a target exactly?"""

    arms: int = 6
    "One die, two dice, and so on."
    contexts: int = 12
    "Targets: the first context asks for 3, the next for 4."

    def build(self) -> Bandit:
        """The bandit: success[s, a] is the exact chance that a + 1 dice add up to s + 3."""
        totals, die = [np.ones(1)], np.array([0, 1, 1, 1, 1, 1, 1]) / 6
        for _ in range(self.arms):
            totals.append(np.convolve(totals[-1], die))
        width = max(6 * self.arms, self.contexts + 2) + 1
        chance = np.stack([np.pad(total, (0, width - len(total))) for total in totals[1:]], axis=1)
        success = chance[3 : 3 + self.contexts]
        uniform = np.full_like(success, -np.log(self.arms))
        return Bandit(name="dice", reward=success, log_policy=uniform, success=success)


if __name__ == "__main__":
    bandit = OwnBandit().build()
    pass_rates = bandit.pass_rate(bandit.log_policy)
    for context, (success, pass_rate) in enumerate(zip(bandit.success, pass_rates, strict=True)):
        best = int(success.argmax())
        print(f"hit {context + 3:2d}: pass rate {pass_rate:.3f} at first, {success[best]:.3f} with {best + 1} dice")
    print("train on it: set kind to this file and OwnBandit in a spec, then pmdkit bandit my.toml --trust THIS_FILE")
