"""What leaves windows that fire more than once: final results, changes, or the whole table, by Spark's output modes."""
