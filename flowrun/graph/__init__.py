"""Transformations, stream graph and job graph: pure values."""
