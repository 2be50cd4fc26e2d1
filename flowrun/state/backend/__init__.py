"""The keyed state behind process functions: Python objects a key, or columns over numbered keys; both snapshot to the same tables."""
