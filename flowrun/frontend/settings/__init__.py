"""The settings of a pipeline, declared and read once for YAML documents and SQL scripts."""
