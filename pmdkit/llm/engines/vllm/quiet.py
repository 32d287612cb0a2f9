"""Standard output belongs to our own data: what vLLM prints, its C++ parts included, goes to standard error."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def to_stderr() -> Iterator[None]:
    """Whatever this process writes to file descriptor 1 inside the block, from any thread, is written to 2."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        with suppress(ValueError):  # a stream that a test runner closed
            sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
