"""`python -m flowrun` is `flowrun`."""

from flowrun.cli.main import entry

entry()
