"""The reward for the format."""

import re


def form(*, response):
    return float(bool(re.search(r"(^|\n)Answer: \d+$", response)))
