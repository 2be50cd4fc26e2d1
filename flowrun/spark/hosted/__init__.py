"""The streaming operators inside Spark tasks: a job vertex is a `mapInArrow` stage, a keyed edge a repartition by key group."""
