"""A public alias of `strict_answers`: `from pmdkit import envs; envs.math_answers.verify`."""

from strict_answers import Grader, Item, Verdict, audit, verify

__all__ = ["Grader", "Item", "Verdict", "audit", "verify"]
