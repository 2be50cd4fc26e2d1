"""Process functions as operators: users' code over rows or batches, with keyed state and timers."""
