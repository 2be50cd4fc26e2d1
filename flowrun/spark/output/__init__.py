"""Sinks on Spark: everything is staged first and appears at the end, at once; a repeated run replaces what the one before it wrote."""
