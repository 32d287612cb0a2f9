"""The config group `pmd`, for Hydra's search path `pkg://pmdkit_adapters.verl.conf`."""
