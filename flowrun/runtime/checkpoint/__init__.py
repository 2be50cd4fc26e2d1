"""Checkpoints of a running job: the coordinator, what it is told and what it asks for, and how state finds its operators again."""
