"""Translates plan nodes that have a native form to DataFrames; each module has a family of nodes."""
