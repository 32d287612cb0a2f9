"""What few runs use: training on logged responses, and episodes with an environment."""
