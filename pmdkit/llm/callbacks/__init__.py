"""Callbacks of a language-model run, one in each file."""
