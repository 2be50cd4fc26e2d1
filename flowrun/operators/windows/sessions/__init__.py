"""Session windows: intervals of a key's rows that grow, merge, and close after a gap without rows."""
