"""The SQL front end: the only importer of sqlglot."""
