"""SQL and pipelines from Python, with results as Arrow tables: `flowrun.sql`, `flowrun.table` and `flowrun.pipeline`."""
