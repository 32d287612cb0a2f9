"""What all benchmarks share: clocks, turns, peak memory, limits of the machine, rows and their record."""
