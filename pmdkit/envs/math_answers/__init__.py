"""Is the answer right? Strict integers first, symbolic comparison in a killable process second, no guessing."""
