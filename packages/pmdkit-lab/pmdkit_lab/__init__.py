"""The laboratory of pmdkit: explain a loss, replay a step, plan a run, check the paper claim by claim."""
