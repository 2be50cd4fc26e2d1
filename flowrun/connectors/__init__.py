"""Connectors: a registry and one module or folder each."""
