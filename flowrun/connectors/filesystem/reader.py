"""The source reader of one subtask: it reads its splits one after the other, and handles bad records as the user wants."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from flowrun.api.format import BadRecord
from flowrun.api.operator import InputStatus
from flowrun.api.source import ReaderContext, RejectedRecord, SourceOutput, Split
from flowrun.connectors.filesystem.dead_letters import DeadLetters
from flowrun.connectors.filesystem.opening import OpenSplit, SplitOpener
from flowrun.connectors.filesystem.scan import FileScan
from flowrun.connectors.filesystem.split_readers import bad_record_error
from flowrun.connectors.formats.record_hints import bad_record_hint
from flowrun.core.row_errors import OnError


class FileSourceReader:
    """Reads splits in the order in which they were added."""

    def __init__(self, scan: FileScan, context: ReaderContext, letters: DeadLetters | None) -> None:
        self._scan = scan
        self._context = context
        self._letters = letters
        self._opener = SplitOpener(scan, context.batch_rows, self._on_bad)
        self._splits: deque[Split] = deque()
        self._open: OpenSplit | None = None
        self._no_more = False
        self._skipped = context.metrics.counter("numRecordsSkipped")
        self._dead = context.metrics.counter("numRecordsDeadLettered")

    def start(self) -> None:
        """Ask for a split unless some were restored."""
        if self._letters is not None:
            self._letters.open()
        if not self._splits:
            self._context.request_split()

    def poll(self, output: SourceOutput) -> InputStatus:
        """Emit one batch of the current split."""
        if not self._splits:
            if not self._no_more:
                return InputStatus.NOTHING_AVAILABLE
            if self._letters is not None:
                self._letters.close()
            self._opener.report_unseen()
            return InputStatus.END_OF_INPUT
        split = self._splits[0]
        if self._open is None:
            self._open = self._opener.open(split.position)
        rows = self._open.next_rows()
        if rows is None:
            self._finish_split()
        elif rows.num_rows:
            output.emit(rows, split.split_id)
        return InputStatus.MORE_AVAILABLE

    def _finish_split(self) -> None:
        self._close_split()
        self._splits.popleft()
        if not self._splits:
            self._context.request_split()

    def _on_bad(self, path: str, offset: int, bad: BadRecord, raw: bytes) -> None:
        match self._scan.error_mode:
            case OnError.FAIL:
                hint = bad_record_hint(raw, bad.reason, self._scan.request.schema.names, self._scan.format_name)
                raise bad_record_error(self._opener.filesystem, path, offset, bad, raw, hint)
            case OnError.DEAD_LETTER if self._context.reject is not None:
                self._context.reject(RejectedRecord(path, offset, bad.reason, raw))
                return
            case OnError.DEAD_LETTER:
                assert self._letters is not None
                self._letters.add(path, offset, bad, raw)
                self._dead.inc()
            case OnError.SKIP:
                self._skipped.inc()
                self._context.metrics.counter("numRecordsFailed.decoding").inc()
                self._context.metrics.note(f"{path}, byte {offset}: {bad.reason}")

    def add_splits(self, splits: Sequence[Split]) -> None:
        """Take splits to read."""
        self._splits.extend(splits)

    def notify_no_more_splits(self) -> None:
        """Take note that the enumerator has no more splits."""
        self._no_more = True

    def snapshot(self) -> Sequence[Split]:
        """The splits that were not read to their end; the first one with the position behind the rows that were emitted."""
        if self._letters is not None:
            self._letters.seal()
        if self._open is None:
            return tuple(self._splits)
        current = Split(self._splits[0].split_id, dict(self._open.position))
        return (current, *list(self._splits)[1:])

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Publish the dead letters that were sealed before the checkpoint."""
        if self._letters is not None:
            self._letters.publish()

    def _close_split(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def close(self) -> None:
        """Close the file, and publish all dead letters."""
        self._close_split()
        if self._letters is not None:
            self._letters.close()
