"""Dead letters: bad records that are put aside as JSON lines, in files that appear only when they are complete."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Sequence
from typing import Any

import orjson

from flowrun.api.format import BadRecord
from flowrun.connectors.filesystem.output_files import OutputFolder
from flowrun.connectors.filesystem.table_path import TablePath


class DeadLetters:
    """Collects the bad records of one reader.

    A line is `{"file", "offset", "reason", "text", "raw"}`: `text` is readable (bytes that are not UTF-8 are replaced), `raw` holds the
    exact bytes in base64. Files are published when a checkpoint with the positions behind their records is complete, at the end of the
    input, and when the reader closes. So none is lost; after a failure, records that were put aside since the last checkpoint may be there
    twice.

    It is used by one thread. Every method raises ConnectorError if the folder cannot be written.
    """

    def __init__(self, location: TablePath, subtask: int) -> None:
        self._folder = OutputFolder(location, option="format.dead-letter.path")
        self._prefix = f"dead-letter-{uuid.uuid4().hex[:12]}-{subtask}"
        self._count = 0
        self._stream: Any = None
        self._open: tuple[str, str] | None = None
        self._written: list[tuple[str, str]] = []

    def open(self) -> None:
        """Create the folder and check that it can be written."""
        self._folder.prepare()

    def add(self, file: str, offset: int, bad: BadRecord, raw: bytes) -> None:
        """Keep one record; `offset` is its byte position in the (decompressed) file."""
        if self._stream is None:
            name = f"{self._prefix}-{self._count}"
            self._count += 1
            self._open = (self._folder.path(f".{name}.inprogress"), self._folder.path(f"{name}.json"))
            self._stream = self._folder.create(self._open[0])
        line: dict[str, str | int] = {
            "file": file,
            "offset": offset,
            "reason": bad.reason,
            "text": raw.decode("utf-8", "replace"),
            "raw": base64.b64encode(raw).decode(),
        }
        self._folder.write(self._stream, orjson.dumps(line) + b"\n", self._open[0] if self._open else "")

    def seal(self) -> None:
        """End the open file: the records that were added so far belong to the checkpoint that is being taken."""
        if self._stream is not None and self._open is not None:
            self._folder.finish(self._stream, self._open[0])
            self._written.append(self._open)
            self._stream = self._open = None

    def publish(self) -> Sequence[str]:
        """Make the sealed files visible; gives their paths."""
        written, self._written = self._written, []
        self._folder.publish(written)
        return [final for _, final in written]

    def close(self) -> None:
        """Publish everything; idempotent."""
        self.seal()
        self.publish()
