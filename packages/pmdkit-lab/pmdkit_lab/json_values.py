"""Numbers of an answer as JSON values, which have no NaN."""

import math
from typing import Any

import numpy as np


def plain(value: Any) -> Any:
    """The value as JSON values: arrays as lists, NaN and infinities as null."""
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value
