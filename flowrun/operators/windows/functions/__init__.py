"""Users' window functions: what runs them, and the state that they keep."""
