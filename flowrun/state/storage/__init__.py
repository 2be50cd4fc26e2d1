"""Checkpoint folders: Parquet state files, metadata, incremental reuse, clean-up and locks, on any `pyarrow.fs` file system."""
