"""Switch off telemetry of other libraries, in this process and in every process that inherits its environment."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

VARIABLES = {
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "WANDB_ERROR_REPORTING": "false",
    "WANDB_CONSOLE": "off",  # the output of a run stays here too
    "GRADIO_ANALYTICS_ENABLED": "False",  # for Trackio
}


def no_telemetry() -> None:
    """Set these before transformers, vLLM or a tracker is imported and reads them. The user's own values stay."""
    for name, value in VARIABLES.items():
        os.environ.setdefault(name, value)


@contextmanager
def quietly() -> Iterator[None]:
    """Keep the terminal for our own progress: in the block, transformers reports only errors and draws no bars."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
