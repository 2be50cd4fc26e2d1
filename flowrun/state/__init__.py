"""Key groups, keyed and operator state."""
