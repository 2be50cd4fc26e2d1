"""Apache Avro: single records and object container files, read and written a column at a time without another library."""
