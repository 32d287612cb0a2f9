"""Errors that reach a person, each with the exit code of the command line.

A user's mistake is a ValueError (exit 2) wherever it is found; the classes here are for what ValueError cannot say.
"""


class PmdkitError(Exception):
    """A failure with a sentence for a person: what; where; what to do."""

    exit_code = 1


class UsageError(PmdkitError, ValueError):
    """Wrong usage, configuration or input data."""

    exit_code = 2


class EnvironmentLacks(PmdkitError):
    """The machine lacks something: an extra, a port, a writable folder. The message holds the remedy."""

    exit_code = 3


class CheckFailed(PmdkitError):
    """A check said no."""

    exit_code = 4


class ResumeRefused(PmdkitError):
    """No loadable checkpoint, or the run on disk is another run."""

    exit_code = 5


class Diverged(PmdkitError):
    """The run met a number that is not finite."""

    exit_code = 6


class ComponentDied(PmdkitError):
    """A part of the run (a verifier, an engine, a rank) died, and retries are used up."""

    exit_code = 7


class Stopped(PmdkitError):
    """Stopped on request; the state is saved and `--resume` goes on."""

    exit_code = 75
