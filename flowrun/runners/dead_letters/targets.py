"""Where dead letters are replayed to: the topic or folder that their source reads, or a file; each in one step, or not at all."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.fs as pafs

from flowrun.api.format import RecordFormat
from flowrun.connectors.filesystem.output_files import OutputFolder
from flowrun.connectors.filesystem.source import FileSource
from flowrun.connectors.kafka.encoding import MESSAGES
from flowrun.connectors.kafka.source import KafkaSource
from flowrun.connectors.kafka.transactions import KafkaTransactions
from flowrun.connectors.staged.commit import StagedCommit
from flowrun.core.record import record
from flowrun.errors import ConnectorError, PipelineError, StateError
from flowrun.operators.letters import decode_headers

LETTER_HEADER = "flowrun-dead-letter"
"""The header of a message that was replayed; its value is the id of the letter."""
_PREFIX = "flowrun-dead-letters"
_BATCH_LETTERS = 1024


@record
class Letter:
    """A letter of a record, as far as it is replayed. `raw` and `key` are None where the message has none."""

    letter_id: str
    raw: bytes | None
    file: str
    topic: str | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    key: bytes | None = None
    headers: str | None = None


class ReplayTarget(Protocol):
    """Takes letters in one step. All calls block on I/O, and raise ConnectorError."""

    def plan(self, replay_id: str) -> Mapping[str, Any]:
        """What is to be done, as JSON: enough to ask later whether it took place."""
        ...

    def write(self, plan: Mapping[str, Any], letters: Sequence[Letter]) -> None:
        """Do it. When this returns it took place; when it raises it may have."""
        ...

    def took_place(self, plan: Mapping[str, Any]) -> bool:
        """Whether it took place; if not, it never will."""
        ...

    def close(self) -> None:
        """Release everything."""
        ...

    def __str__(self) -> str:
        """Where letters go, for messages."""
        ...


class TopicTarget:
    """The topics of a source: messages as they were, in their partitions, with one header more, in a transaction that records itself.

    Args:
        source: of the pipeline.
        pipeline: its name.
        topic: one of the topics; it names the record.
    """

    def __init__(self, source: KafkaSource, pipeline: str, topic: str) -> None:
        self._topic = topic
        self._writer = f"{pipeline}/{source.name}/0"
        self._transactions = KafkaTransactions(source.scan.cluster, topic, _PREFIX)

    def __str__(self) -> str:
        return f"topic '{self._topic}'"

    def plan(self, replay_id: str) -> Mapping[str, Any]:
        """The number of the commit."""
        number = self._transactions.committed_number(self._writer) + 1
        return {"topic": self._topic, "number": number, "commit": replay_id}

    def write(self, plan: Mapping[str, Any], letters: Sequence[Letter]) -> None:
        """Produce the messages."""
        commit = StagedCommit(self._writer, plan["number"], plan["commit"], len(letters))
        pieces = (letters[i : i + _BATCH_LETTERS] for i in range(0, len(letters), _BATCH_LETTERS))
        self._transactions.write(commit, map(_messages, pieces))

    def took_place(self, plan: Mapping[str, Any]) -> bool:
        """Whether its number is recorded: asking ends a transaction that was left open."""
        return self._transactions.committed_number(self._writer) >= int(plan["number"])

    def close(self) -> None:
        """Release the clients."""
        self._transactions.close()


def _messages(letters: Sequence[Letter]) -> pa.RecordBatch:
    rows = [
        {
            "topic": letter.topic,
            "partition": letter.partition,
            "key": letter.key,
            "value": letter.raw,
            "timestamp": letter.timestamp_ms,
            "headers": [
                *((n, v) for n, v in decode_headers(letter.headers) if n != LETTER_HEADER),
                (LETTER_HEADER, letter.letter_id.encode()),
            ],
        }
        for letter in letters
    ]
    return pa.RecordBatch.from_pylist(rows, MESSAGES)


class FolderTarget:
    """A new file in the folder that a source reads, under a hidden name until it is complete.

    Args:
        source: of the pipeline.
        folder: below the source's folder: that of the letters' file.
    """

    def __init__(self, source: FileSource, folder: str) -> None:
        self._source = source
        self._folder = folder
        self._output = OutputFolder(source.location)

    def __str__(self) -> str:
        return f"folder '{self._folder}'"

    def plan(self, replay_id: str) -> Mapping[str, Any]:
        """The names of the file."""
        name = f"dead-letters-{replay_id}"
        extension = self._source.format.extension
        return {
            "hidden": f"{self._folder}/.{name}.inprogress",
            "file": f"{self._folder}/{name}.{extension.lstrip('.')}",
        }

    def write(self, plan: Mapping[str, Any], letters: Sequence[Letter]) -> None:
        """Write the file, force it to disk, and show it."""
        stream = self._output.create(plan["hidden"])
        for letter in letters:
            self._output.write(stream, (letter.raw or b"") + b"\n", plan["hidden"])
        self._output.finish(stream, plan["hidden"])
        self._output.settle()
        self._output.publish([(plan["hidden"], plan["file"])])

    def took_place(self, plan: Mapping[str, Any]) -> bool:
        """Whether the file is there; what is left of one that is not is removed."""
        system, _ = self._source.location.open()
        if system.get_file_info(plan["file"]).type != pafs.FileType.NotFound:
            return True
        if system.get_file_info(plan["hidden"]).type != pafs.FileType.NotFound:
            system.delete_file(plan["hidden"])
        return False

    def close(self) -> None:
        """Nothing is open."""


class FileTarget:
    """A new file on this machine, one record a line."""

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()

    def __str__(self) -> str:
        return f"file '{self._path}'"

    def plan(self, replay_id: str) -> Mapping[str, Any]:
        """The names of the file."""
        return {"hidden": str(self._path.with_name(f".{self._path.name}.{replay_id}")), "file": str(self._path)}

    def write(self, plan: Mapping[str, Any], letters: Sequence[Letter]) -> None:
        """Write the file, force it to disk, and give it its name if nobody else has."""
        hidden = Path(plan["hidden"])
        try:
            with hidden.open("xb") as file:
                for letter in letters:
                    file.write((letter.raw or b"") + b"\n")
                file.flush()
                os.fsync(file.fileno())
            os.link(hidden, self._path)
            descriptor = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            hidden.unlink()
        except OSError as error:
            raise ConnectorError(f"{self._path} cannot be written: {error.strerror or error}") from error

    def took_place(self, plan: Mapping[str, Any]) -> bool:
        """Whether the file got its name, wherever it was moved since: the hidden one, which is removed, has a second link then."""
        hidden, path = Path(plan["hidden"]), Path(plan["file"])
        if not hidden.exists():
            return path.exists()
        linked = hidden.stat().st_nlink > 1
        hidden.unlink()
        return linked

    def close(self) -> None:
        """Nothing is open."""


def check_lines(source: object, letters: Sequence[Letter], name: str, hint: str) -> None:
    """Pass if the records, one a line, are read as the same records by a source of files.

    Args:
        source: what reads them.
        letters: the records.
        name: of the source.
        hint: what else can be done.

    Raises:
        PipelineError: they are not.
    """
    if not isinstance(source, FileSource):
        raise PipelineError.of(f"source '{name}' reads neither files nor topics: nothing can be replayed to it", hint)
    used = source.format
    if not isinstance(used, RecordFormat) or used.create_framer is None:
        raise PipelineError.of(
            f"files of format '{source.format_name}' are no lines: nothing can be added to them", hint
        )
    if used.create_decoder(source.request).has_header:
        raise PipelineError.of(f"files of source '{name}' begin with a header, which letters do not have", hint)
    framer, content = used.create_framer(source.options), b"".join((letter.raw or b"") + b"\n" for letter in letters)
    chunk, _ = framer.frame(content, True)
    if [chunk.record(i) for i in range(len(chunk))] != [letter.raw for letter in letters]:
        raise PipelineError.of(f"records of source '{name}' would run into each other in one file", hint)


def target_folder(source: FileSource, file: str, name: str, hint: str) -> str:
    """The folder for a file of letters: that of the file that they come from, so that it has the same partition.

    Raises:
        PipelineError: the source would not read a file there.
    """
    location = source.location
    system, base = location.open()
    if location.is_glob or source.options.get("source.path.regex-pattern") is not None:
        raise PipelineError.of(f"source '{name}' chooses files by their names: it might not read a new one", hint)
    if system.get_file_info(base).type != pafs.FileType.Directory:
        raise PipelineError.of(f"source '{name}' reads one file, which is not changed", hint)
    folder = file.rpartition("/")[0]
    return folder if folder == base or folder.startswith(base.rstrip("/") + "/") else base


def new_replay_id() -> str:
    """Twelve hex digits."""
    return uuid.uuid4().hex[:12]


def settled(target: ReplayTarget, plan: Mapping[str, Any]) -> bool:
    """Whether a replay took place that has no end in the record.

    Raises:
        StateError: it cannot be said.
    """
    try:
        return target.took_place(plan)
    except ConnectorError as error:
        raise StateError(
            f"a replay to {target} was interrupted, and it cannot be said whether it took place: {error.message}",
            hint="try again when it can be reached; nothing is replayed before",
        ) from error
