"""pmdkit beside TRL, verl, prime-rl and Tinker. Nothing is imported here: each needs its own package."""
