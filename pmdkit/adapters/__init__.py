"""The same objectives inside other people's trainers. Nothing is imported here: each needs a package of its own."""
