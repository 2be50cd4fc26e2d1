"""Operators that keep results up to date: they take changelogs and send changelogs."""
