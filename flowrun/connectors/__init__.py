"""Connectors and formats. Each connector is a module or a folder of its own; `registry` finds them by name."""
