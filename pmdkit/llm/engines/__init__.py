"""Engines write responses. One protocol, one file or folder per engine, imported when it is asked for."""

# name -> "module:function" that makes an Engine from an EngineConfig
ENGINES = {
    "transformers": "pmdkit.llm.engines.transformers:make",
    "vllm": "pmdkit.llm.engines.vllm.colocate:make",
    "vllm-server": "pmdkit.llm.engines.vllm.server:make",
}

# engines of which the main process has the only one, and controls it for all
CENTRAL = {"vllm-server"}
