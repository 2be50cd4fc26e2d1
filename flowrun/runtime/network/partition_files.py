"""Files of blocking partitions: what one attempt of a producer wrote for one of its consumers, for whoever can read the folder.

    records of rows (see `batches.py`) │ footer: what follows what │ its size, its checksum │ magic

The footer comes last and says how long each record is, so a file whose writer was killed has none, and one that was cut or changed
afterwards is noticed: rows are used only when their checksum is right. Events and the columns of rows are in the footer.

    folder of the job / attempt of the producer / data set - subtask . subpartition .arrows
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path

import numpy as np
import pyarrow as pa

from flowrun.core.elements import Event, RecordBatch
from flowrun.core.record import record
from flowrun.errors import PartitionLostError, RpcError
from flowrun.graph.execution_graph import PartitionId
from flowrun.runtime.network.batches import BatchEncoder
from flowrun.runtime.network.events import encode_event
from flowrun.runtime.rpc.codec import decode, encode

_END = struct.Struct(">QQ8s")
"""Bytes of the footer, its checksum, and what every such file ends with."""
_MAGIC = b"FLOWRUN1"
_WORD = 8


class ItemKind(IntEnum):
    """What an item of a file is."""

    ROWS = 0
    EVENT = 1
    SCHEMA = 2


@record
class StoredItem:
    """What comes next in a file.

    Attributes:
        kind: an `ItemKind`.
        size: of rows: bytes of their record, which follows that of the rows before.
        checksum: of rows: of these bytes.
        content: of an event, and of the columns of the rows that follow.
    """

    kind: int
    size: int = 0
    checksum: int = 0
    content: bytes = b""


Items = tuple[StoredItem, ...]


@record
class SubpartitionPath:
    """Where one subpartition is.

    Attributes:
        folder: of the job.
        partition: that it belongs to.
        attempt_id: of the producer that writes it, or wrote it: another attempt has other files.
        index: its number in the partition.
    """

    folder: Path
    partition: PartitionId
    attempt_id: str
    index: int

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / self.attempt_id / f"{_stem(self.partition)}.{self.index}.arrows"

    def remove(self) -> None:
        """Delete the file, and the attempt's folder with the last one. Idempotent."""
        self.path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # there are others
            self.path.parent.rmdir()

    def lost(self, cause: str) -> PartitionLostError:
        """The error for a file that cannot be read any more."""
        return PartitionLostError(
            f"spilled rows are lost: {self.path} {cause}",
            data_set_id=self.partition.data_set_id,
            subtask=self.partition.subtask,
            hint="keep other programs away from that folder, or set TMPDIR to another one; with a restart strategy they are made again",
        )


def _stem(partition: PartitionId) -> str:
    return f"{partition.data_set_id}-{partition.subtask}"


class SubpartitionWriter:
    """Writes one file, from its first row to its footer. Not thread-safe. Methods raise OSError: the disk does not take it.

    Args:
        place: of the file, whose job's folder exists. That of the attempt is made: if the job is over, and its folder gone, this fails.
    """

    def __init__(self, place: SubpartitionPath) -> None:
        self._place = place
        self._encoder = BatchEncoder()
        self._items: list[StoredItem] = []
        self._file: pa.OSFile | None = None

    def add(self, batch: RecordBatch) -> None:
        """Append rows without watermarks between them."""
        schema = self._encoder.new_schema(batch)
        if schema is not None:
            self._items.append(StoredItem(ItemKind.SCHEMA, content=schema.serialize().to_pybytes()))
        data = b"".join(self._encoder.payload([batch]))
        self._opened().write(data)
        self._items.append(StoredItem(ItemKind.ROWS, len(data), checksum(data)))

    def add_event(self, event: Event) -> None:
        """Append an event."""
        self._items.append(StoredItem(ItemKind.EVENT, content=encode_event(event)))

    def finish(self) -> Items:
        """Write the footer; gives what is in it."""
        items = tuple(self._items)
        footer = encode(items, Items)
        file = self._opened()
        file.write(footer + _END.pack(len(footer), checksum(footer), _MAGIC))
        self._file = None
        file.close()
        return items

    def close(self) -> None:
        """Write no more."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _opened(self) -> pa.OSFile:
        if self._file is None:
            self._place.path.parent.mkdir(exist_ok=True)
            self._file = pa.OSFile(str(self._place.path), "wb")
        return self._file


def read_items(place: SubpartitionPath) -> Items:
    """What is in a file that was finished.

    Raises:
        PartitionLostError: it is not there, was not finished, or is damaged.
    """
    try:
        with place.path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            if size < _END.size:
                raise place.lost("was not finished")
            file.seek(size - _END.size)
            footer_size, expected, magic = _END.unpack(file.read(_END.size))
            begins = size - _END.size - footer_size
            if magic != _MAGIC or begins < 0:
                raise place.lost("was not finished, or is damaged: it has no footer")
            file.seek(begins)
            footer = file.read(footer_size)
    except FileNotFoundError as error:
        raise place.lost("is gone") from error
    except OSError as error:
        raise place.lost(f"cannot be read: {error}") from error
    try:
        if checksum(footer) != expected:
            raise place.lost("is damaged: its footer was changed")
        items: Items = decode(memoryview(footer), Items)
    except RpcError as error:
        raise place.lost(f"is damaged: {error.message}") from error
    if sum(item.size for item in items) != begins:
        raise place.lost(f"is damaged: it has {begins} bytes of rows, not {sum(item.size for item in items)}")
    return items


def remove_partition(folder: Path, partition: PartitionId, attempt_id: str) -> None:
    """Delete what an attempt wrote for one edge, in a job's folder, whoever did. Idempotent."""
    written = folder / attempt_id
    with contextlib.suppress(FileNotFoundError):
        for entry in list(os.scandir(written)):
            if entry.name.rsplit(".", 2)[0] == _stem(partition):
                Path(entry.path).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # there are others, or it is gone
        written.rmdir()


def check_all(places: Sequence[SubpartitionPath]) -> None:
    """Pass if all these subpartitions of one data set can be read.

    Raises:
        PartitionLostError: for the first one that cannot; it names the others.
    """
    lost: list[PartitionLostError] = []
    for place in places:
        try:
            read_items(place)
        except PartitionLostError as error:
            lost.append(error)
    if lost:
        lost[0].others = " ".join(str(error.subtask) for error in lost[1:])
        raise lost[0]


def checksum(data: bytes | memoryview | pa.Buffer) -> int:
    """A sum of all bytes as words of 64 bits: any single change is noticed, at ten times the speed of a CRC.

    >>> checksum(b"12345678" * 2 + b"9") - checksum(b"12345678" * 2 + b"8")
    1
    """
    view = memoryview(data)
    whole = len(view) - len(view) % _WORD
    total = int(np.add.reduce(np.frombuffer(view[:whole], "<u8"))) if whole else 0
    return (total + int.from_bytes(view[whole:], "little")) % (1 << 64)
