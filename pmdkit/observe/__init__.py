"""Output of a run: its folder, checkpoints and metrics."""
