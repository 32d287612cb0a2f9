"""Somebody's run, read from what its trainer wrote: measures.py measures each step while its rows are read, causes.py
names what may be wrong, report.py writes the page. No model, no GPU, and nothing in a file runs.
"""
