"""Formats: how rows become bytes and files."""
