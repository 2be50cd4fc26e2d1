"""Session clusters: one dispatcher, many jobs."""
