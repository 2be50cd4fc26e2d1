"""Runs the streaming operators in Spark tasks: a job vertex is a `mapInArrow` stage, a keyed edge a repartition by key group."""
