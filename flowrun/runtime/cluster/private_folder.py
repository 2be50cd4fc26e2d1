"""Folders for the sockets of processes that work together."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

_LONGEST_PARENT_BYTES = 60
"""Of a socket's path, which may have some 100 bytes on all systems."""


def private_folder(prefix: str) -> Path:
    """A new folder that only this user can enter, with a path short enough for the sockets in it."""
    parent = tempfile.gettempdir()
    if len(os.fsencode(parent)) > _LONGEST_PARENT_BYTES:
        parent = "/tmp"
    return Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
