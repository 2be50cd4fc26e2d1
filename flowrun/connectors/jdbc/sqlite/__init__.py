"""`jdbc:sqlite:`: reads and writes Arrow batches by ADBC; any number of processes may have the file open."""
