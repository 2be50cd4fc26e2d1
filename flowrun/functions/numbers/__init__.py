"""Functions of numbers, and their text on Spark."""
