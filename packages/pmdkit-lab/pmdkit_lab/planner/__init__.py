"""Predicts the cost of a recipe on accelerators before they are rented: memory, time, and what would fit.

Arithmetic only: no weights are loaded. The sizes of a model come from its configuration (`model_size`).
"""
