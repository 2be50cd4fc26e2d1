"""Harnesses for users and for flowrun's own tests."""
