"""The recorder: what a step was, kept in one file, and what can be asked of it later without a model.

recording.py writes and reads the file; replay.py asks another objective through gradient.py, biography.py follows one
response.
"""
