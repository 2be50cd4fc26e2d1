"""Lint: what is right in a pipeline, but seldom meant."""
