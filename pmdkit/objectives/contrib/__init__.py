"""Losses of other papers, for comparison: the same contract, contract suite and golden vectors as the losses beside."""
