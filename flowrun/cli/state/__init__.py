"""The commands of `flowrun state`."""
