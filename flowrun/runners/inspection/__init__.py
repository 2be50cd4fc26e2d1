"""What is in checkpoints and savepoints, for `flowrun state` and `flowrun verify`."""
