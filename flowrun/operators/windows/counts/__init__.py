"""Windows that time does not bound: over a number of a key's rows, or over all of them."""
