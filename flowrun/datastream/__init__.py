"""The programmatic API."""
