"""Durations as a user types them: 90 seconds are `1m30s`."""

import re

from pmdkit.errors import UsageError

UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0}


def duration(text: str) -> float:
    """Seconds of a duration such as 2m, 90s, 1h or 1h30m."""
    match = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?", text.strip())
    seconds = 0.0
    if match is not None:
        seconds = sum(float(number or 0) * unit for number, unit in zip(match.groups(), UNITS.values(), strict=True))
    if seconds <= 0:
        raise UsageError(f"--budget is '{text}'; expected a duration such as 2m, 20m, 90m or 1h30m")
    return seconds


def clock(seconds: float) -> str:
    """Seconds as a string that `duration` reads: 90 is `1m30s`."""
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    minutes, rest = divmod(rest, 60)
    words = "".join(f"{value}{unit}" for value, unit in zip((hours, minutes, rest), UNITS, strict=True) if value)
    return words or "0s"
