"""Recorded training steps: each is kept in one file and can be analysed later without a model.

recorded.py reads the file, dumps.py a step of another trainer; replay.py evaluates another objective on it, using
gradient.py; web.py exports a run for the browser.
"""
