"""Output of a run: its folder, checkpoints, metrics, the display on a terminal, and trackers."""
