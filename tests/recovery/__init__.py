"""Jobs that are killed and go on: matrix, chaos, injected failures, kept savepoints."""
