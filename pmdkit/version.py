"""The version, read by the build and by `pmdkit --version`."""

__version__ = "0.1.0"
