"""The commit of rows that wait: the same requests under the same keys, however often it is made (ADR 39).

A server has no place in which requests and a record of them appear together. So the record is kept where the rows wait: it says that all
requests of a commit were taken. A process that dies before it writes that down sends them again, and the server knows them by their keys.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import groupby

import pyarrow as pa

from flowrun.api.sink import Committable
from flowrun.connectors.http.cutting import RequestCutter
from flowrun.connectors.http.endpoint import Endpoint
from flowrun.connectors.http.lanes import RequestLanes
from flowrun.connectors.http.layout import RequestShape
from flowrun.connectors.staged.commit import StagedCommit, StagedCommitter
from flowrun.errors import StateError
from flowrun.state.storage.staged_files import staging_folder
from flowrun.state.storage.state_path import StatePath


class HttpTarget:
    """Sends the rows of commits. Connections last for a commit.

    Args:
        endpoint: the server.
        content_type: of bodies.

    Attributes:
        folder: where the rows wait, which is where the record is.
    """

    def __init__(self, endpoint: Endpoint, content_type: str) -> None:
        self._endpoint = endpoint
        self._content_type = content_type
        self.folder = ""

    def committed_number(self, writer: str) -> int:
        """The number in the record; 0: there is none. Raises StateError."""
        path = self._record_of(writer)
        content = path.read_bytes()
        if content is None:
            return 0
        try:
            found = json.loads(content)
            if found["writer"] == writer and isinstance(found["number"], int):
                return int(found["number"])
        except (ValueError, KeyError, TypeError):
            pass
        raise StateError(
            f"'{path}' does not say which rows the server has taken",
            hint="restore it from a backup; or delete it, and the rows of the last commit are sent again under the same keys",
        )

    def write(self, commit: StagedCommit, batches: Iterator[pa.RecordBatch]) -> None:
        """Send all rows, and record it when the server has taken them. See `TransactionalTarget`.

        Raises:
            ConnectorError: a request failed; some may have been taken.
        """
        cutter: RequestCutter | None = None
        rows = next(batches, None)
        if rows is not None:
            shape = RequestShape.of_metadata(rows.schema.metadata)
            with closing(RequestLanes(self._endpoint, shape.lanes)) as lanes:
                identity = f"{commit.writer}/{commit.commit_id}"
                cutter = RequestCutter(shape, self._endpoint.url, self._content_type, identity, lanes.send)
                while rows is not None:
                    cutter.add(rows)
                    rows = next(batches, None)
                cutter.flush()
                lanes.drain()
        folder = staging_folder(self.folder)
        self._record_of(commit.writer).write_atomically(
            json.dumps({"writer": commit.writer, "number": commit.number}).encode()
        )
        folder.sync_folder()

    def _record_of(self, writer: str) -> StatePath:
        return staging_folder(self.folder) / f"sent-{hashlib.sha256(writer.encode()).hexdigest()[:32]}.json"

    def close(self) -> None:
        """Nothing lasts longer than a commit."""


class HttpCommitter(StagedCommitter):
    """Sends rows that wait, and keeps the record beside them.

    Args:
        endpoint: the server.
        content_type: of bodies.
    """

    def __init__(self, endpoint: Endpoint, content_type: str) -> None:
        self._sent = HttpTarget(endpoint, content_type)
        super().__init__(lambda: self._sent)

    def commit(self, committables: Sequence[Committable]) -> None:
        """See `StagedCommitter`; rows of a savepoint may wait in the folder of another job."""
        for folder, own in groupby(committables, lambda c: str(c.payload.get("folder", ""))):
            self._sent.folder = folder
            super().commit(tuple(own))
