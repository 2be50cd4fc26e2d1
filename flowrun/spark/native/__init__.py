"""Plan nodes with a native form, one module a family: node → DataFrame."""
