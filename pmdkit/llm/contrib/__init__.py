"""Parts that few runs use: episodes with an environment."""
