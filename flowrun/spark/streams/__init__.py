"""Pipelines without end in Spark's executors: Spark gives machines and supervision, the processes that it hosts are task executors.

`capacity` says how many there can be, `spark_workers` keeps them running from the driver, `hosting` is what Spark runs in its Python
workers: it starts the process of a task executor and waits for its end.
"""
