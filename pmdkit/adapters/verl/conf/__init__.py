"""The config group `pmd`, for Hydra's search path `pkg://pmdkit.adapters.verl.conf`."""
