"""Libraries that count their users are told not to, here and in every process that inherits the environment."""

import os

OFF = {
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "WANDB_ERROR_REPORTING": "false",
    "GRADIO_ANALYTICS_ENABLED": "False",  # of Trackio
}
"Variables that the libraries read once, when they are imported."


def no_telemetry() -> None:
    """Set them, where whoever runs this has not; before transformers, vLLM or a tracker is imported."""
    for name, value in OFF.items():
        os.environ.setdefault(name, value)
