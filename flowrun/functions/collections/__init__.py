"""Arrays, maps and rows: their functions, how they are made and taken apart, and their text on Spark."""
