"""Backend 3: transformers causal language models, trained on problems with checkable answers."""
