"""Plan to transformations."""
