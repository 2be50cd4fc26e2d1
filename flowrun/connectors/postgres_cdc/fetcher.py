"""The thread that reads the table and then its log, beside the subtask."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from flowrun.api.source import JsonValue
from flowrun.connectors.jdbc.postgres.connecting import translated
from flowrun.connectors.jdbc.postgres.texts import identifier, literal
from flowrun.connectors.postgres_cdc.database import (
    CapturedTable,
    Keepalive,
    ReplicationConnection,
    format_lsn,
    prepare,
    read_frame,
    session,
    slot_state,
)
from flowrun.connectors.postgres_cdc.pgoutput import read_message
from flowrun.connectors.postgres_cdc.snapshot import read_snapshot
from flowrun.connectors.postgres_cdc.transactions import ChangeAssembler, LogPlace
from flowrun.core.elements import RecordBatch
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.errors import ConnectorError, JobCancelledError

_log = logging.getLogger(__name__)
_WAITING_ITEMS = 8
_FEEDBACK_S = 5.0
_IDLE_MS = 200
_SLOT_RELEASE_S = 20.0
"""How long the slot may be held by a connection of an attempt that has ended."""
_NOTE = "flowrun reads slot {slot} from {lsn}"


@record
class CapturePosition:
    """How far a table was read.

    Attributes:
        place: in the log; while rows of the table itself are read, where the log is read from afterwards.
        after: the key of the last of these rows, as texts; None: there was none yet.
        in_log: whether all of them were read.
    """

    place: LogPlace
    after: tuple[str, ...] | None = None
    in_log: bool = False

    def to_json(self) -> dict[str, JsonValue]:
        """For checkpoints."""
        after: JsonValue = None if self.after is None else list(self.after)
        return {"lsn": self.place.lsn, "skip": self.place.skip, "after": after, "in_log": self.in_log}

    @classmethod
    def from_json(cls, found: Any) -> CapturePosition | None:
        """As `to_json` gave it; None: nothing was read."""
        if found.get("lsn") is None:
            return None
        after = found["after"]
        place = LogPlace(cast(int, found["lsn"]), cast(int, found["skip"]))
        return cls(place, None if after is None else tuple(after), bool(found["in_log"]))


@record
class Fetched:
    """Rows, and how far they reach."""

    rows: RecordBatch | None
    position: CapturePosition


@record
class Capture:
    """What is read, and how.

    Attributes:
        table: of the database.
        schema: the columns wanted.
        keys: the columns of the primary key.
        reads_rows: whether the rows that are there come first; else only changes from now on.
        ignores_truncate: whether TRUNCATE is left out; else it is an error.
    """

    table: CapturedTable
    schema: Schema
    keys: tuple[str, ...]
    reads_rows: bool
    ignores_truncate: bool


class CaptureFetcher:
    """Reads in a thread of its own, as far ahead as there is room.

    Args:
        capture: what.
        position: where to go on; None: at the beginning.
        batch_rows: rows of one item.
        notify: is called when there is something to take.
    """

    def __init__(
        self, capture: Capture, position: CapturePosition | None, batch_rows: int, notify: Callable[[], None]
    ) -> None:
        self._capture = capture
        self._position = position
        self._batch_rows = batch_rows
        self._notify = notify
        self._items: queue.Queue[Fetched | Exception] = queue.Queue(_WAITING_ITEMS)
        self._stopped = threading.Event()
        self._kept_lsn = 0
        self._received_lsn = 0
        self._fed_back = 0.0
        self._thread = threading.Thread(target=self._run, name=f"flowrun-cdc-{capture.table.slot}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def take(self) -> Fetched | None:
        """The next rows; None: there are none yet. Raises what went wrong behind the last of them."""
        try:
            item = self._items.get_nowait()
        except queue.Empty:
            return None
        if isinstance(item, Exception):
            raise item
        return item

    def keep(self, lsn: int) -> None:
        """A checkpoint that has read up to here is complete: the server may forget what comes before."""
        self._kept_lsn = max(self._kept_lsn, lsn)

    def stop(self) -> None:
        """End the thread; waits for it, which a server that hangs may hold up for some seconds."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(10)

    def _put(self, item: Fetched | Exception) -> None:
        while not self._stopped.is_set():
            try:
                self._items.put(item, timeout=0.1)
            except queue.Full:
                continue
            self._notify()
            return
        raise JobCancelledError("the source was closed")

    def _run(self) -> None:
        replication: list[ReplicationConnection] = []
        try:
            with translated(self._capture.table.access):
                self._read(replication)
        except JobCancelledError:
            return
        except Exception as error:
            try:
                self._put(error)
            except JobCancelledError:
                return
        finally:
            for connection in replication:
                connection.close()

    def _read(self, opened: list[ReplicationConnection]) -> None:
        table = self._capture.table
        prepare(table)
        position, snapshot = self._position, None
        replication = ReplicationConnection(table)
        opened.append(replication)
        if position is None:
            self._make_room()
            lsn, snapshot = replication.create_slot()
            with session(table) as connection:
                note = literal(_NOTE.format(slot=table.slot, lsn=format_lsn(lsn)))
                connection.execute(f"COMMENT ON PUBLICATION {identifier(table.publication)} IS {note}")
            position = CapturePosition(LogPlace(lsn), None, in_log=not self._capture.reads_rows)
            self._put(Fetched(None, position))
        else:
            self._check_slot(position)
        if not position.in_log:
            position = self._read_rows(position, snapshot)
        self._follow(replication, position)

    def _read_rows(self, position: CapturePosition, snapshot: str | None) -> CapturePosition:
        capture = self._capture
        for rows, last in read_snapshot(capture.table, capture.schema, capture.keys, position.after, snapshot):
            for start in range(0, rows.num_rows, self._batch_rows):
                part = rows.slice(start, self._batch_rows)
                # Between parts of one block the position stays before it: to read a row again is harmless, as rows are upserts.
                whole = start + part.num_rows == rows.num_rows
                position = replace(position, after=last) if whole else position
                self._put(Fetched(RecordBatch(part), position))
        position = replace(position, in_log=True)
        self._put(Fetched(None, position))
        return position

    def _follow(self, replication: ReplicationConnection, position: CapturePosition) -> None:
        capture = self._capture
        assembler = ChangeAssembler(
            capture.table.name, capture.schema, capture.keys, position.place, ignores_truncate=capture.ignores_truncate
        )
        self._start(replication, position.place.lsn)
        told = time.monotonic()
        while True:
            data = replication.read(0 if assembler.waiting else _IDLE_MS)
            if data is None:
                if assembler.waiting:
                    self._put(Fetched(assembler.take(), replace(position, place=assembler.place)))
            else:
                frame = read_frame(data)
                self._received_lsn = max(self._received_lsn, frame.end_lsn)
                if isinstance(frame, Keepalive):
                    moved = assembler.advance(frame.end_lsn)
                    if moved and time.monotonic() - told > 1:
                        told = time.monotonic()
                        self._put(Fetched(None, replace(position, place=assembler.place)))
                    if frame.wants_reply:
                        self._feed_back(replication, at_once=True)
                else:
                    assembler.add(read_message(frame.data))
                    if assembler.waiting >= self._batch_rows - 1:
                        self._put(Fetched(assembler.take(), replace(position, place=assembler.place)))
            self._feed_back(replication)
            if self._stopped.is_set():
                raise JobCancelledError("the source was closed")

    def _feed_back(self, replication: ReplicationConnection, *, at_once: bool = False) -> None:
        now = time.monotonic()
        if at_once or now - self._fed_back >= _FEEDBACK_S:
            self._fed_back = now
            replication.confirm(max(self._received_lsn, self._kept_lsn), self._kept_lsn)

    def _start(self, replication: ReplicationConnection, lsn: int) -> None:
        self._wait_until_free()
        replication.start(lsn)

    def _wait_until_free(self) -> None:
        """Until no connection of an earlier attempt holds the slot any more; one that goes on holding it is another reader's."""
        deadline = time.monotonic() + _SLOT_RELEASE_S
        while True:
            with session(self._capture.table) as connection:
                state = slot_state(connection, self._capture.table)
            if state is None or not state.is_active:
                return
            if time.monotonic() > deadline:
                raise ConnectorError(
                    f"the replication slot '{self._capture.table.slot}' on {self._capture.table.server} is read by another process",
                    hint="each pipeline needs a 'slot.name' of its own; if the other process is gone, the server notices within a minute",
                    retryable=True,
                )
            if self._stopped.wait(0.2):
                raise JobCancelledError("the source was closed")

    def _make_room(self) -> None:
        """Before a slot is made: one of this name must not be there, unless nobody has read from it but to fail at once."""
        self._wait_until_free()
        table = self._capture.table
        with session(table) as connection:
            state = slot_state(connection, table)
            if state is None:
                return
            (note,) = connection.execute(
                "SELECT obj_description(oid, 'pg_publication') FROM pg_publication WHERE pubname = %s",
                [table.publication],
            ).fetchone()
            unread = note == _NOTE.format(slot=table.slot, lsn=format_lsn(state.confirmed_lsn))
            if not (unread or state.is_lost):
                raise ConnectorError(
                    f"the replication slot '{table.slot}' on {table.server} is there already: a pipeline has read from it",
                    hint="go on from that pipeline's checkpoint or savepoint (flowrun resume), choose another 'slot.name', or, if nobody "
                    f"needs it any more: SELECT pg_drop_replication_slot('{table.slot}')",
                )
            _log.info("dropping the replication slot '%s', of which nothing was kept", table.slot)
            connection.execute("SELECT pg_drop_replication_slot(%s)", [table.slot])

    def _check_slot(self, position: CapturePosition) -> None:
        table = self._capture.table
        with session(table) as connection:
            state = slot_state(connection, table)
        problem = None
        if state is None:
            problem = "is gone"
        elif state.is_lost:
            problem = "has lost the log that it needs (max_slot_wal_keep_size)"
        elif state.confirmed_lsn > position.place.lsn:
            problem = (
                f"begins at {format_lsn(state.confirmed_lsn)}, but this checkpoint needs changes from "
                f"{format_lsn(position.place.lsn)} on"
            )
        if problem is not None:
            raise ConnectorError(
                f"the replication slot '{table.slot}' on {table.server} {problem}: changes since the checkpoint are lost",
                hint="start the pipeline afresh, without the checkpoint, so that it reads the whole table again",
            )
