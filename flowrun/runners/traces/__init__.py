"""Traces of a job for OpenTelemetry: its checkpoints, starts and restarts."""
