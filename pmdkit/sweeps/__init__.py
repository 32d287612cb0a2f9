"""Sweeps: `grid` lists the runs, `run` runs them, `record` stores their results, `compare` pairs those by seed."""
