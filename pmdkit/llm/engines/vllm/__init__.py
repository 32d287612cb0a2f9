"""vLLM as an engine: in this process (inside.py) or as servers (server.py). Nothing here is imported without [vllm]."""
