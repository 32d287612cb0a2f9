"""Rehearsal of a recipe at full size and full world size, on a machine without an accelerator."""
