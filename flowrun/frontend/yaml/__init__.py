"""The YAML front end."""
