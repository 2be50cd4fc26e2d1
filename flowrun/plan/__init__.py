"""The relational plan and its rewrites."""
