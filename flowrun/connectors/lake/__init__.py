"""What the connectors of lake tables (`iceberg`, `delta`) share: writers, committers, enumerators and readers."""
