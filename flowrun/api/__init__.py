"""Protocols that operators, connectors and user functions implement."""
