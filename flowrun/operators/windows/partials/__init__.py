"""Partial results of aggregates as state of windows: logs of them, their tables, cells that rows are folded into."""
