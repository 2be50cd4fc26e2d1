"""Bounded runs and backfills on Apache Spark: a plan becomes DataFrames, and stages that run the streaming operators.

`translation` walks a plan. Nodes with a native form become DataFrame operations (`native/`), all others run the very operators of the
stream in Spark's Python workers (`hosted/`). `input/` and `output/` are its sources and sinks. Batch sees every row, so nothing is late,
and a sink gets the final table: where the stream sends updates, Spark writes only their final result.
"""
