"""A token task of your own: copy this file, change the methods, and name it in a spec as kind = "my.py:MyTask".

Here: split a number into two. Many answers are right, so the policy has a choice that the reward does not make for it.
"""

from dataclasses import dataclass

import numpy as np

from pmdkit.envs import TokenProblem


@dataclass(frozen=True)
class OwnTask(TokenProblem):
    """Which two numbers add up to the one in the prompt?"""

    highest: int = 9
    "Largest number asked for. The fields of the class are the options of [env]."

    vocabulary = property(lambda self: (*map(str, range(self.highest + 1)), "<eos>"))
    prompt_length = property(lambda self: 1)
    width = property(lambda self: 3)  # two numbers and <eos>

    def sample(self, rng, count):
        """[count, 1] numbers to split; the token of a number is the number itself."""
        return rng.integers(self.highest + 1, size=(count, 1))

    def all_prompts(self):
        """Every prompt once. Leave this method out where there are many: then one in 8 is held out."""
        return np.arange(self.highest + 1)[:, None]

    def check(self, prompt, response):
        """Right or wrong, for a response without its <eos>."""
        return len(response) == 2 and sum(response) == prompt[0] and self.eos not in response

    def answer(self, prompt, rng):
        """The teacher's answer in a warm start."""
        first = int(rng.integers(prompt[0] + 1))
        return [first, int(prompt[0]) - first, self.eos]


if __name__ == "__main__":
    task = OwnTask().build()
    responses, mask = task.responses()
    right = task.grade(task.grid, np.tile(responses, (len(task.grid), 1)), np.tile(mask, (len(task.grid), 1)))
    chance = right @ float(len(task.vocabulary)) ** -mask.sum(1)  # pass rate of a policy uniform over the tokens
    for prompt, count, p0 in zip(task.grid, right.sum(1), chance, strict=True):
        said = task.text(task.answer(prompt, np.random.default_rng(0)))
        print(f"{task.text(prompt)} -> {said}, one of {count:2.0f} right answers; p0 = {p0:.4f}")
    print("train on it: set kind to this file and OwnTask in a spec, then pmdkit toy my.toml --trust THIS_FILE")
