"""Reproduces the paper within a time budget as one report. `reproduce` runs it; parts.py lists the parts."""

from pmdkit_lab.reproduce.part import Part, PartContext, budget_of, choose
from pmdkit_lab.reproduce.runner import reproduce

__all__ = [
    "Part",
    "PartContext",
    "budget_of",
    "choose",
    "reproduce",
]
