"""The watchdog: a process of its own that ends a job's process when it no longer answers, and says why it ended."""
