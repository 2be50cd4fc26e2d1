"""Formats: how rows are written as bytes and files, and read from them."""
