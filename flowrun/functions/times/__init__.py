"""Functions of dates, times and intervals, and their text on Spark."""
