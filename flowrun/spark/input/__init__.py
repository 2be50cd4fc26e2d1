"""Scans on Spark: its own readers for files, and every other connector through the Python Data Source API."""
