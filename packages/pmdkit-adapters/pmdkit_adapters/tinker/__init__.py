"""A learner whose model is trained and sampled on a server that speaks the Tinker API; no accelerator is needed here.

`service.py` makes the calls, `certificate.py` proves that the server takes the gradient it is asked for, `learner.py`
is the Learner.
"""
