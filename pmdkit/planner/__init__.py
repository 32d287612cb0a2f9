"""What a recipe costs on accelerators that nobody has rented yet: memory by phase, seconds by phase, what would fit.

Numbers only: no torch, no model. The sizes of a model come from its configuration (`sizes`).
"""
