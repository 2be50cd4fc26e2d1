"""Aggregates: their records, their kernels, and their text on Spark."""
