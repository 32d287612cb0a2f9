"""The version, read by the build, and part of the keys of a journal: other rules are another judge."""

__version__ = "0.1.0"
