"""Inputs that nobody would write: whatever they are, flowrun answers with a diagnostic and never with an exception of Python.

`corpus.py` collects texts that are right, `mutation.py` damages them, `targets.py` hands them to the front end and to the state readers.
A small slice runs with the other tests; `make soak` runs many more; `python -m tests.fuzz.campaign` runs for hours and follows coverage.
"""
