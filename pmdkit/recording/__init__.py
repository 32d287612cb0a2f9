"""The recorder: what a step was, kept in one file, and what can be asked of it later without a model.

Writing: witness.py sees the log-probabilities, recorder.py puts a step together, format.py is the file.
Reading: shelf.py finds a step, replay.py asks another objective, biography.py follows one response.
"""
