"""The thread that reads the table and then its log, beside the subtask."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, cast

from flowrun.api.source import JsonValue
from flowrun.connectors.jdbc.postgres.connecting import CLIENT, translated
from flowrun.connectors.jdbc.quoting import identifier, literal
from flowrun.connectors.postgres_cdc.chunks import Chunk, cut, joined, left_to_read
from flowrun.connectors.postgres_cdc.database import (
    NEEDED_BY,
    CapturedTable,
    Wanted,
    prepare,
    session,
    silent,
    slot_state,
)
from flowrun.connectors.postgres_cdc.log_places import format_lsn
from flowrun.connectors.postgres_cdc.membership import Membership, check_kept, membership_of
from flowrun.connectors.postgres_cdc.parallel_chunks import ParallelChunks
from flowrun.connectors.postgres_cdc.pgoutput import join_messages
from flowrun.connectors.postgres_cdc.replication import ReplicationConnection
from flowrun.connectors.postgres_cdc.snapshot import TableSnapshot, read_chunks
from flowrun.connectors.postgres_cdc.table_watch import TableWatch
from flowrun.connectors.postgres_cdc.transactions import ChangeAssembler, LoggedTable, LogPlace
from flowrun.core.elements import RecordBatch
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.errors import ConnectorError, JobCancelledError

_log = logging.getLogger(__name__)
_WAITING_ITEMS = 8
_FEEDBACK_S = 5.0
_IDLE_MS = 200
_READ_BYTES = 8 << 20
"""Of messages of the log that are made one batch."""
_TOLD_S = 1.0
"""How often a place is told that was reached without a row."""
_WATCH_S = 10.0
"""How often the catalogs are asked whether the table is still published."""
_SLOT_RELEASE_S = 20.0
"""How long the slot may be held by a connection of an attempt that has ended."""
_NOTE = "flowrun reads slot {slot} from {lsn}"


@record
class CapturePosition:
    """How far a table was read.

    Attributes:
        place: in the log; while rows of the table itself are read, where the log is read from afterwards.
        membership: how the table belonged to its publication when it was asked; None: an earlier version has not kept it.
        left: what is left of the table itself; None: nothing, the log is read.
    """

    place: LogPlace
    membership: Membership | None
    left: tuple[Chunk, ...] | None = None

    def to_json(self) -> dict[str, JsonValue]:
        """For checkpoints."""
        left: JsonValue = None if self.left is None else [chunk.to_json() for chunk in self.left]
        membership = None if self.membership is None else self.membership.to_json()
        return {"lsn": self.place.lsn, "skip": self.place.skip, "left": left, "membership": membership}

    @classmethod
    def from_json(cls, found: Any) -> CapturePosition | None:
        """As `to_json` gave it; None: nothing was read."""
        if found["lsn"] is None:
            return None
        left = found["left"]
        place = LogPlace(cast(int, found["lsn"]), cast(int, found["skip"]))
        membership = found.get("membership")
        return cls(
            place,
            None if membership is None else Membership.from_json(membership),
            None if left is None else tuple(Chunk(*chunk) for chunk in left),
        )


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
        chunk_rows: about how many of these rows are read by one query.
        ignores_truncate: whether TRUNCATE is left out; else it is an error.
    """

    table: CapturedTable
    schema: Schema
    keys: tuple[str, ...]
    reads_rows: bool
    chunk_rows: int
    ignores_truncate: bool


class CaptureFetcher:
    """Reads in a thread of its own, and the table itself in some more, as far ahead as there is room.

    Args:
        capture: what.
        position: where to go on; None: at the beginning.
        batch_rows: messages of the log to make one batch of.
        connections: how many chunks of the table are read at the same time.
        notify: is called when there is something to take.
    """

    def __init__(
        self,
        capture: Capture,
        position: CapturePosition | None,
        batch_rows: int,
        connections: int,
        notify: Callable[[], None],
    ) -> None:
        self._capture = capture
        self._position = position
        self._batch_rows = batch_rows
        self._connections = connections
        self._notify = notify
        self._items: queue.Queue[Fetched | Exception] = queue.Queue(_WAITING_ITEMS)
        self._stopped = threading.Event()
        self._kept_lsn = 0
        self._received_lsn = 0
        self._fed_back = 0.0
        self._feedback_s = min(_FEEDBACK_S, capture.table.access.silence_s / 6)
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

    def _put(self, item: Fetched | Exception, replication: ReplicationConnection | None = None) -> None:
        """Wait for room; meanwhile the server hears that somebody is there, if its log is being read."""
        while not self._stopped.is_set():
            try:
                self._items.put(item, timeout=0.1)
            except queue.Full:
                if replication is not None:
                    self._feed_back(replication)
                continue
            self._notify()
            return
        raise JobCancelledError("the source was closed")

    def _run(self) -> None:
        try:
            with translated(self._capture.table.access), ExitStack() as opened:
                self._read(opened)
        except JobCancelledError:
            return
        except Exception as error:
            if isinstance(error, ConnectorError) and error.hint:  # what says so speaks of the options of jdbc
                error.hint = error.hint.replace("'url'", "'hostname', 'port', 'database-name'")
            try:
                self._put(error)
            except JobCancelledError:
                return

    def _read(self, opened: ExitStack) -> None:
        capture, position = self._capture, self._position
        columns = tuple(dict.fromkeys((*capture.schema.names, *capture.keys)))
        wanted = Wanted(columns, capture.keys, not capture.ignores_truncate)
        oid = prepare(capture.table, wanted, goes_on=position is not None)
        membership = self._membership(oid, None if position is None else position.membership)
        replication = ReplicationConnection(capture.table)
        opened.callback(replication.close)
        with ExitStack() as claimed:
            claimed.enter_context(self._claim())
            if position is not None:
                self._check_slot(position)
            if position is None or position.left is not None:
                position = self._read_table(membership, position, replication)
            self._wait_until_free()
            self._check_slot(position)
            replication.start(position.place.lsn)
        watch = TableWatch(capture.table, membership, wanted, _WATCH_S, time.monotonic())
        self._follow(replication, position.place, watch)

    def _membership(self, oid: int, kept: Membership | None) -> Membership:
        """How the table belongs to its publication. Raises ConnectorError if it was out of it since the checkpoint."""
        table = self._capture.table
        with session(table) as connection:
            now = membership_of(connection, table, oid)
        if kept is not None:
            check_kept(table, kept, now)
        return now

    def _read_table(
        self, membership: Membership, position: CapturePosition | None, replication: ReplicationConnection
    ) -> CapturePosition:
        """Read what is left of the table, after the slot is made if there is none; gives the place where the log is read from."""
        capture = self._capture
        with ExitStack() as opened:
            snapshot = TableSnapshot(capture.table, membership.table)
            opened.callback(snapshot.close)
            if position is None:
                place, exported = self._make_slot(replication)
                moment, left = snapshot.take(exported), None
            else:
                place = position.place
                moment, left = snapshot.take(None), position.left
            in_log = CapturePosition(place, membership)
            if capture.reads_rows:
                left = left_to_read(snapshot.pieces, left)
                chunks = cut(left, snapshot.pieces, capture.chunk_rows, snapshot.server_version)
                self._put(Fetched(None, replace(in_log, left=joined(chunks))))
                ParallelChunks(
                    chunks,
                    partial(read_chunks, capture.table, capture.schema, moment),
                    lambda rows, left: self._put(Fetched(rows, replace(in_log, left=left))),
                    self._stopped.is_set,
                ).read(self._connections)
        self._put(Fetched(None, in_log))
        return in_log

    def _make_slot(self, replication: ReplicationConnection) -> tuple[LogPlace, str]:
        """Make the slot: the place in the log where it begins, and the name of the moment that this is."""
        table = self._capture.table
        self._make_room()
        lsn, exported = replication.create_slot()
        errors = CLIENT.module("psycopg.errors", NEEDED_BY)
        with session(table) as connection, suppress(errors.InsufficientPrivilege):  # of a publication of somebody else
            note = literal(_NOTE.format(slot=table.slot, lsn=format_lsn(lsn)))
            connection.execute(f"COMMENT ON PUBLICATION {identifier(table.publication)} IS {note}")
        return LogPlace(lsn), exported

    def _follow(self, replication: ReplicationConnection, place: LogPlace, watch: TableWatch) -> None:
        capture = self._capture
        table = LoggedTable(watch.membership.table, capture.table.schema_name, capture.table.table_name)
        assembler = ChangeAssembler(
            table, capture.schema, capture.keys, place, ignores_truncate=capture.ignores_truncate
        )
        told, told_at = place, time.monotonic()
        heard = told_at
        while not self._stopped.is_set():
            found = replication.read(_IDLE_MS, self._batch_rows, _READ_BYTES)
            wants_reply = False
            if found:
                heard = time.monotonic()
                messages = join_messages(found)
                self._received_lsn = max(self._received_lsn, messages.end_lsn)
                wants_reply = messages.wants_reply
                assembler.add(messages)
                assembler.advance(messages.sent_lsn)
            has_rows = assembler.waiting > 0
            if has_rows or (assembler.place != told and time.monotonic() - told_at > _TOLD_S):
                told, told_at = assembler.place, time.monotonic()
                rows = assembler.take() if has_rows else None
                self._put(Fetched(rows, CapturePosition(told, watch.membership)), replication)
                heard = time.monotonic()
            silence_s = time.monotonic() - heard
            if silence_s > capture.table.access.silence_s:
                raise silent(capture.table)
            watch.check(told.lsn, time.monotonic())
            asks = silence_s > capture.table.access.silence_s / 3 or (watch.has_found and not found)
            self._feed_back(replication, at_once=wants_reply or watch.has_found, asks=asks)
        raise JobCancelledError("the source was closed")

    def _feed_back(self, replication: ReplicationConnection, *, at_once: bool = False, asks: bool = False) -> None:
        """Tell the server now and then how far this is; `asks`: it has said nothing for a while, and is to say whether it is there."""
        now = time.monotonic()
        if at_once or now - self._fed_back >= self._feedback_s:
            self._fed_back = now
            replication.confirm(max(self._received_lsn, self._kept_lsn), self._kept_lsn, asks=asks)

    @contextmanager
    def _claim(self) -> Iterator[None]:
        """Inside nobody else makes the slot or reads the table for it: until its log is read the server does not know whose it is."""
        table = self._capture.table
        with session(table) as connection:
            query = "SELECT pg_try_advisory_lock(hashtext('flowrun reads a slot'), hashtext(%s))"
            self._until_ours(lambda: bool(connection.execute(query, [table.slot]).fetchone()[0]))
            yield

    def _wait_until_free(self) -> None:
        """Until no connection of an earlier attempt holds the slot any more."""

        def is_free() -> bool:
            with session(self._capture.table) as connection:
                state = slot_state(connection, self._capture.table)
            return state is None or not state.is_active

        self._until_ours(is_free)

    def _until_ours(self, is_ours: Callable[[], bool]) -> None:
        """Wait for the slot; what goes on holding it is another reader. Raises ConnectorError."""
        deadline = time.monotonic() + _SLOT_RELEASE_S
        while not is_ours():
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
                    retryable=False,
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
                f"begins at {format_lsn(state.confirmed_lsn)}, but changes are needed from "
                f"{format_lsn(position.place.lsn)} on"
            )
        if problem is not None:
            raise ConnectorError(
                f"the replication slot '{table.slot}' on {table.server} {problem}: changes since the checkpoint are lost",
                retryable=False,
                hint="start the pipeline afresh, without the checkpoint, so that it reads the whole table again",
            )
