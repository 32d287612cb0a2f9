"""Mathematical problems with checkable answers: read from files, or generated. No torch here."""
