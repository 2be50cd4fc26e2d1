"""flowrun: declarative streaming pipelines with Flink's semantics on Arrow batches."""

__version__ = "0.1.0"
