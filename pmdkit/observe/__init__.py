"""What a run writes and shows: its folder, checkpoints, metrics, the display on a terminal, and trackers."""
