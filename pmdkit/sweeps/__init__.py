"""Grids of runs, comparisons paired by seed, and the paper's experiments in miniature.

`grid` lists the runs, `run` runs them, `record` stores their results, `compare` and `pictures` read those.
"""
