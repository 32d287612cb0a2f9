"""A public alias of `pmdkit.envs.verifier`: `from pmdkit import envs; envs.math_answers.verify`."""

from pmdkit.envs.verifier import Grader, Item, Verdict, audit, verify

__all__ = ["Grader", "Item", "Verdict", "audit", "verify"]
