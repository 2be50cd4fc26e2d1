"""Subtask threads, mailboxes and operator chains."""
