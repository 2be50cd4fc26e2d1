"""Copies of state files on this machine's disk: a restore here need not read them from an object store again.

Every state file that this machine writes to another file system is written to a folder of this user as well, up to a bound; what was used
last stays. A copy is known by the URI of its file and by the checksum with which checkpoints name it, and counts only if all its bytes are
those that were written. Without one, or if anything is wrong with it, the file itself is read. So copies can be deleted at any time, and
a full disk only means that there are fewer. Apache Flink calls this local recovery.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import zlib
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from flowrun.core.user_cache import NEW, cache_folders, make_room, private_folder

MOST_BYTES = 2 << 30
"""That are kept, unless FLOWRUN_LOCAL_STATE_BYTES says otherwise; 0: none are."""
_FOLDER = "state"
_PIECE = 4 << 20

_log = logging.getLogger(__name__)


class CopyBeingWritten:
    """A copy that grows with its file. Errors end it, and nothing else.

    Args:
        folder: of copies.
        uri: of the file.
        most_bytes: that the folder keeps.
    """

    def __init__(self, folder: Path, uri: str, most_bytes: int) -> None:
        self._folder = folder
        self._uri = uri
        self._most_bytes = most_bytes
        self._place = folder / f"{NEW}{secrets.token_hex(8)}"
        self._crc = 0
        self._size = 0
        self._file: BinaryIO | None = None
        with suppress(OSError):
            descriptor = os.open(
                self._place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
            )
            self._file = open(descriptor, "wb")  # noqa: SIM115 - closed by `keep` and `drop`

    def write(self, data: bytes) -> None:
        """Append to the copy."""
        if self._file is None:
            return
        try:
            self._file.write(data)
        except OSError as error:  # such as a full disk
            _log.debug("no copy of %s is kept: %s", self._uri, error)
            self.drop()
            return
        self._crc = zlib.crc32(data, self._crc)
        self._size += len(data)

    def keep(self, checksum: str) -> None:
        """The file is complete, and checkpoints name it with that checksum: the copy counts from now on."""
        if self._file is None:
            return
        try:
            self._file.close()
            os.replace(self._place, self._folder / f"{_prefix(self._uri, checksum, self._size)}{self._crc:08x}")
        except OSError as error:
            _log.debug("no copy of %s is kept: %s", self._uri, error)
            self.drop()
            return
        make_room(self._folder, self._most_bytes)

    def drop(self) -> None:
        """There is to be no copy. Idempotent."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None
        with suppress(OSError):
            self._place.unlink()


class LocalCopies:
    """Copies in a folder, which processes of this user share.

    Args:
        folder: is there, and this user's alone.
        most_bytes: that are kept.
    """

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        self._folder = folder
        self._most_bytes = most_bytes

    def begin(self, uri: str) -> CopyBeingWritten:
        """A copy of a file that is about to be written."""
        return CopyBeingWritten(self._folder, uri, self._most_bytes)

    def open(self, uri: str, checksum: str, size: int) -> pa.NativeFile | None:
        """The copy of a file that has that checksum and size, after all of it was checked; None: there is none."""
        for place in self._folder.glob(f"{_prefix(uri, checksum, size)}*"):
            try:
                if _crc_of(place) == int(place.name.rpartition("-")[2], 16):
                    os.utime(place)
                    return pa.OSFile(str(place), "rb")
                _log.warning("the copy of %s on this machine is damaged: the file itself is read", uri)
                place.unlink()
            except (OSError, ValueError):  # deleted meanwhile, or not a copy
                continue
        return None


@cache
def local_copies() -> LocalCopies | None:
    """The copies of this user on this machine; None: there are to be none, or no folder can be had."""
    try:
        most_bytes = int(os.environ.get("FLOWRUN_LOCAL_STATE_BYTES", MOST_BYTES))
    except ValueError:
        _log.warning("FLOWRUN_LOCAL_STATE_BYTES is no number of bytes: no copies of state are kept on this machine")
        return None
    if most_bytes <= 0:
        return None
    for folder in cache_folders():
        with suppress(OSError):
            private_folder(folder, 0o022)
            return LocalCopies(private_folder(folder / _FOLDER), most_bytes)
    return None


def _prefix(uri: str, checksum: str, size: int) -> str:
    return f"{hashlib.sha256(f'{uri} {checksum}'.encode()).hexdigest()[:40]}-{size}-"


def _crc_of(place: Path) -> int:
    crc = 0
    with place.open("rb") as file:
        while piece := file.read(_PIECE):
            crc = zlib.crc32(piece, crc)
    return crc
