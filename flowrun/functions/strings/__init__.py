"""Functions of texts and bytes, and their text on Spark."""
