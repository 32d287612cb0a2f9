"""Shared by all benchmarks: clocks, turns, peak memory, limits of the machine, rows and their record."""
