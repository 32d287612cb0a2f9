"""The picture of a run, and the style that all figures share."""
