"""Text to plan: spans, diagnostics, YAML and SQL."""
