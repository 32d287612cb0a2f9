"""Somebody's run, read from what its trainer wrote: readers.py reads the dumps, measures.py measures each step while it
is read, causes.py names what may be wrong, report.py writes the page. No model, no GPU, and nothing in a file runs.
"""
