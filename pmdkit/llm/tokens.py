"""The type of tokenised text, below everything that takes it."""

from collections.abc import Sequence

Tokens = Sequence[int]
