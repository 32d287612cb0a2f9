"""Other libraries are told not to report their use, here and in every process that inherits the environment."""

import os

VARIABLES = {
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "WANDB_ERROR_REPORTING": "false",
    "WANDB_CONSOLE": "off",  # nor what a run prints
    "GRADIO_ANALYTICS_ENABLED": "False",  # for Trackio
}


def no_telemetry() -> None:
    """Call it before transformers, vLLM or a tracker is imported, which read these once. The user's own values stay."""
    for name, value in VARIABLES.items():
        os.environ.setdefault(name, value)
