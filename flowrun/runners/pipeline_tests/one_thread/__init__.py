"""A cluster whose jobs run on the caller's thread, step by step, so that everything is at rest between two calls."""
