"""What workers of a vLLM 0.24 server can do besides: take weights from a file. Option --worker-extension-cls.

vLLM mixes the class into its worker; all names here begin with pmdkit_.
"""

from typing import Any

from pmdkit.llm.engines.vllm.names import Names
from pmdkit.llm.engines.vllm.weight_file import WeightFile, read


class Reloading:
    """Methods for /collective_rpc, which takes and returns strings."""

    model_runner: Any
    pmdkit_tag: str = ""

    def pmdkit_take(self, path: str, digest: str, size: str, tag: str) -> str:
        """Compare the whole file, then load it. The tag is known when all of it is in place."""
        weights = read(WeightFile(path, digest, int(size)), Names(self.model_runner.model_config.hf_config).filed)
        self.pmdkit_tag = "half an update"
        self.model_runner.reload_weights(weights_iterator=iter(weights.items()), is_checkpoint_format=True)
        self.pmdkit_tag = tag
        return tag

    def pmdkit_held(self) -> str:
        """The tag of the weights that are in place."""
        return self.pmdkit_tag
