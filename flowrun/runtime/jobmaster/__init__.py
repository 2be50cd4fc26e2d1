"""The execution graph and its scheduler."""
