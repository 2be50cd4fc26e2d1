"""Any window with a trigger, an evictor or a function of its own: keeps the rows, and follows Flink's `WindowOperator`."""
