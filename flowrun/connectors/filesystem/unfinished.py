"""Files that look damaged because somebody is still writing them.

Files of a source are to appear when they are complete: written under a hidden name, and renamed. Who does not do so may be lucky with a
restart, which comes when the file is complete. That is for files that were just changed; others are damaged for good.
"""

from __future__ import annotations

import time

import pyarrow.fs as pafs

from flowrun.connectors.formats.damage import DamagedInputError
from flowrun.errors import ConnectorError

_MAY_GO_ON_S = 10.0
"""Whoever is still writing a file has changed it so long ago at most."""
_APPEAR_WHOLE = frozenset({"s3", "gcs"})
"""Stores in which nobody sees an object before it is complete."""


def damage_of(filesystem: pafs.FileSystem, path: str, error: DamagedInputError) -> ConnectorError:
    """What to say of a file that looks damaged. It blocks on I/O."""
    if filesystem.type_name in _APPEAR_WHOLE:
        return error
    try:
        changed_at = filesystem.get_file_info(path).mtime
    except OSError:
        return error
    if changed_at is None or time.time() - changed_at.timestamp() > _MAY_GO_ON_S:
        return error
    return ConnectorError(
        f"{error.message.rstrip('.')}; it was changed in the last {_MAY_GO_ON_S:g} seconds and may still be written",
        hint="files should appear when they are complete: write them under a name that begins with '.' or '_', and rename them",
    )
