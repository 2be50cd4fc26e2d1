"""State of keyed operators: rows that are found by their keys, and what snapshots keep of them."""
