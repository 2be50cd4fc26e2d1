"""Tables of relational databases, by Flink's `jdbc` connector: read, looked up in, and written."""
