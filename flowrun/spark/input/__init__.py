"""Scans on Spark: Spark's own readers read files, and the Python Data Source API reads all other connectors."""
