"""Tests of whole pipelines: runs them on rows that a file gives, on one thread and by a clock that stands still, and compares."""
