"""Hydra's search path `pkg://pmdkit.adapters.verl.conf`: the group `pmd`."""
