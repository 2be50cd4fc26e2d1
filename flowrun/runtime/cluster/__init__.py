"""The roles of a cluster and the processes that they run in."""
