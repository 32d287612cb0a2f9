"""The objectives inside other trainers, TRL and verl. Nothing is imported here: each needs its own package."""
