"""Row pattern matching: MATCH_RECOGNIZE over the ordered rows of each key."""
