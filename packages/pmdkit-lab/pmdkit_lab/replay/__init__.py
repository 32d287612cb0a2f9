"""Recorded training steps: each is kept in one file and can be analysed later without a model.

recording.py writes and reads the file; replay.py evaluates another objective on it, using gradient.py; web.py
exports a run for the browser.
"""
