"""Many pipelines together: which they are, what they have in common, and the tables between them."""
