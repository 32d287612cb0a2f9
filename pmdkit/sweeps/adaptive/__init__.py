"""Room: does a temperature per prompt help? A study in three tiers, its comparisons stated before its runs.

`protocol` says what is compared, `play` makes one run, `study` makes all and can be interrupted, `table` reads them.
"""

from pmdkit.sweeps.adaptive.study import study

__all__ = ["study"]
