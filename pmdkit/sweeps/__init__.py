"""Room: grids of runs, comparisons paired by seed, and the paper's experiments in miniature.

`grid` says which runs, `children` runs them, `record` keeps what came out, `compare` reads it.
"""
