"""Recorded training steps, which can be analysed later without a model: replay.py evaluates another objective on one,
using gradient.py; web.py exports a run for the browser.
"""
