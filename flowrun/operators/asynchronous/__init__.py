"""Asynchronous functions: many rows asked for at a time, in order or as answers come."""
