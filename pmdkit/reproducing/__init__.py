"""Room: the whole paper again at a budget of time, as one report. `reproduce` runs it, parts.py lists what there is."""

from pmdkit.reproducing.part import Bench, Part, budget_of, choose, clock, duration
from pmdkit.reproducing.running import reproduce
from pmdkit.reproducing.watching import Watch, watching

__all__ = ["Bench", "Part", "Watch", "budget_of", "choose", "clock", "duration", "reproduce", "watching"]
