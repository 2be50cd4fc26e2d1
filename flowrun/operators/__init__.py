"""Implementations of the operator contract."""
