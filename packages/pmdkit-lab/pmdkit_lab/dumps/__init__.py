"""Read what a trainer wrote: readers.py the dumps of every trainer, one response at a time, recorded.py a recorded step
of pmdkit, as_recording.py a step of another trainer's dump as such a recording. Autopsy and replay stand on it.
"""
