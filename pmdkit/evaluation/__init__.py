"""Evaluate a trained policy: k draws on each problem; average, best-of-k and majority vote, with intervals."""
