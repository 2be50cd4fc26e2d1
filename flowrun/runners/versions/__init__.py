"""Versions of a pipeline: which ran, how one takes the place of another, and what differs between two."""
