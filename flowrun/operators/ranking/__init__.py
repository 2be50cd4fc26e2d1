"""Top-N, deduplication, window top-N and sorting: rows in an order, kept up to date or sent when time has come."""
