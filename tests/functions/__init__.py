"""Tests of the function library."""
