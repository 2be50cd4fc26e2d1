"""Operators that work on each row by itself: constant rows, event times, several rows made of one."""
