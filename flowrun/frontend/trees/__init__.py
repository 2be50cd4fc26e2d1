"""Trees whose every node knows its place: read from YAML, changed by `--set`, checked against a declaration of their keys."""
