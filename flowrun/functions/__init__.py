"""SQL functions: one record each."""
