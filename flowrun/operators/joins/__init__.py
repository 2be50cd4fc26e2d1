"""Joins of two streams, and of a stream with an outside table."""
