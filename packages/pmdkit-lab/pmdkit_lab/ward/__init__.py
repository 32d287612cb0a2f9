"""Replicas of public runs that failed: each makes the mechanism of one patient on a CPU, with its cure beside it.

`python -m pmdkit_lab.ward per_token` prints a table; docs/use/ward/ has the patients. No code or log of theirs is here.
"""
