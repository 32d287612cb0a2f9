"""Engines, which generate responses: one protocol, and one file or folder per engine, imported on demand."""

# name -> "module:name" of what makes an Engine from an EngineConfig
ENGINES = {
    "transformers": "pmdkit.llm.engines.transformers:make",
    "vllm": "pmdkit.llm.engines.vllm.colocate:ColocatedEngine",
    "vllm-server": "pmdkit.llm.engines.vllm.server:ServerEngine",
}

# engines that exist in the main process only, which controls them for all processes
CENTRAL = {"vllm-server"}
