"""Composition roots."""
