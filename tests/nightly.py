"""Parameters that a change does not wait for."""

import pytest


def mostly_nightly(values, *kept):
    """Parameters of which a change waits for those that are kept; `make nightly` runs the others."""
    known = list(values)
    assert set(kept) <= set(known), f"{sorted(map(str, set(kept) - set(known)))} are no parameters here"
    late = pytest.mark.nightly
    return [
        v if v in kept else pytest.param(*v, marks=late) if isinstance(v, tuple) else pytest.param(v, marks=late)
        for v in known
    ]
