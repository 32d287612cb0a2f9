"""The verbs that the laboratory adds to `pmdkit`, one module each."""
