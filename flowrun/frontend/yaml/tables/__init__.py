"""The sources and sinks of the document, and their tables."""
