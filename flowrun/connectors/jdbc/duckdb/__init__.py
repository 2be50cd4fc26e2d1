"""`jdbc:duckdb:`: reads and writes Arrow batches in this process, which has the file to itself."""
