"""Sinks on Spark: all rows are staged first and become visible together at the end. A repeated run replaces the rows of the run before."""
