"""What few runs use: episodes with an environment."""
