"""What the writers of a lake table hand over to its committer, and the names by which both know each other."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, cast

from flowrun.api.sink import Committable, WriterContext
from flowrun.api.source import JsonValue
from flowrun.core.record import record
from flowrun.core.shapes import Shape, integer, listed, members, one_of, text

_NAME = re.compile(r"(?:^|[-./])(([0-9a-f]{12})-[0-9a-f]{12}-\d+)-(\d+)-\d+\.parquet$")
CHANGE_FOLDER = "_flowrun_changes"
"""The folder, in that of a table, of changes that wait for their commit. Readers of lake tables ignore names that begin with `_`."""


class Content(Enum):
    """What the files of a committable hold."""

    ROWS = "rows"
    """Rows of the table: the commit adds the files to it."""
    CHANGES = "changes"
    """Changes by key: the commit applies them."""


@record
class Handed:
    """The payload of a committable: what one writer wrote between two checkpoints.

    Attributes:
        writer: name of the writer: no other run or subtask has it.
        sequence: 1, 2, … of the committables of a writer, which are committed in this order.
        checkpoint: the lowest number of a checkpoint that can know it.
        written_ms: when it was prepared, in ms since the epoch.
        content: of the files.
        files: as the connector describes them; each has a `path`.
    """

    writer: str
    sequence: int
    checkpoint: int
    written_ms: int
    content: Content
    files: tuple[Mapping[str, Any], ...]

    @property
    def commit_id(self) -> str:
        """The id of the committable."""
        return f"{self.writer}-{self.sequence}"

    @property
    def committable(self) -> Committable:
        """As it is stored in checkpoints."""
        payload: dict[str, JsonValue] = {
            "writer": self.writer,
            "sequence": self.sequence,
            "checkpoint": self.checkpoint,
            "written": self.written_ms,
            "content": self.content.value,
            "files": [cast("dict[str, JsonValue]", dict(f)) for f in self.files],
        }
        return Committable(self.commit_id, payload)


PAYLOAD: Shape = members(
    {
        "writer": text,
        "sequence": integer(1),
        "checkpoint": integer(),
        "written": integer(),
        "content": one_of(*(c.value for c in Content)),
        "files": listed(members({"path": text}, open_=True)),
    }
)
"""The shape of `Handed.committable`'s payload; the committer checks what the connector says of files."""


def handed(committable: Committable) -> Handed:
    """What a committable holds; its payload has the shape `PAYLOAD`."""
    given = cast("dict[str, Any]", committable.payload)
    return Handed(
        given["writer"],
        given["sequence"],
        given["checkpoint"],
        given["written"],
        Content(given["content"]),
        tuple(given["files"]),
    )


def in_order(committables: Sequence[Committable]) -> list[Handed]:
    """What committables hold, each once, in the order in which it is to be committed."""
    found = {c.commit_id: handed(c) for c in committables}
    return sorted(found.values(), key=lambda h: (h.checkpoint, h.sequence))


def owner_digits(owner: str) -> str:
    """The owner of a writer as the names of its files tell it.

    >>> owner_digits("some lineage")
    '7702eabb9493'
    """
    return hashlib.sha256(owner.encode()).hexdigest()[:12]


def writer_name(context: WriterContext) -> str:
    """The name of a writer: its owner, its attempt and its subtask."""
    return f"{owner_digits(context.owner)}-{owner_digits(context.attempt)}-{context.subtask}"


def file_name(writer: str, sequence: int, number: int) -> str:
    """The name of a file: of which writer and committable it is, and its number there."""
    return f"part-{writer}-{sequence}-{number}.parquet"


@record
class FileOrigin:
    """What the name of a file says: the digits of its owner, and the committable that it is part of."""

    owner: str
    writer: str
    sequence: int

    @property
    def commit_id(self) -> str:
        """Of the committable."""
        return f"{self.writer}-{self.sequence}"


def file_origin(path: str) -> FileOrigin | None:
    """The origin of a file; None: it is not from a writer of ours.

    >>> file_origin("t/p=1/part-0123456789ab-ba9876543210-3-7-0.parquet").commit_id
    '0123456789ab-ba9876543210-3-7'
    >>> file_origin("t/part-00000-c8da9062-c5cb-4b28-a320-36afbd6c5d4d-c000.snappy.parquet") is None
    True
    """
    found = _NAME.search(path)
    return None if found is None else FileOrigin(found[2], found[1], int(found[3]))
