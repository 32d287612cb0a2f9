"""A temperature in words, as titles show it."""

from typing import Any


def format_tau(tau: Any, scale: str = "{0, 1}") -> str:
    """`tau 0.05 on rewards {0,1} (0.1 on ±1)`: a temperature, a rule as a table or None, on the scale of `Bandit`."""
    if tau is None:
        return "no temperature"
    if not isinstance(tau, (int, float)):
        return f"tau by rule: {tau['rule'] if isinstance(tau, dict) else tau}"
    if scale == "{0, 1}":
        return f"tau {tau:g} on rewards {{0,1}} ({2 * tau:g} on ±1)"
    if scale == "{-1, 1}":
        return f"tau {tau:g} on rewards ±1 ({tau / 2:g} on {{0,1}})"
    return f"tau {tau:g} in reward units (rewards {scale})"
