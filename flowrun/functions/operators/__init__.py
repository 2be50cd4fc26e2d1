"""Operators and conditions: what they take and give, their kernels, and their text on Spark."""
