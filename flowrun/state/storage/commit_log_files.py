"""The files of commit logs: `_commits/<lineage>-….jsonl` in a job's folder. docs/state-format.md describes them.

Each file belongs to one process, which writes it whole, again and again, until it is full: so it works on object stores, and several
processes may write logs into one folder. Each line begins with the CRC-32 of its JSON. With a key the first line signs those behind it.
"""

from __future__ import annotations

import threading
import uuid
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace

import orjson

from flowrun.api.sink import Committable
from flowrun.errors import StateError
from flowrun.state.commit_log import Fork, LineageLog, LoggedCommit, WentBack
from flowrun.state.kept_names import plain_name
from flowrun.state.storage.documents import Document
from flowrun.state.storage.names import COMMITS_FOLDER
from flowrun.state.storage.other_checkpoints import has_metadata
from flowrun.state.storage.signing import check_signature, signature, state_key
from flowrun.state.storage.state_path import StatePath, resolve

MOST_LINES = 64
"""A file with so many lines is full."""

_SUFFIX = ".jsonl"
_BACK = "-back-"
_SIGNED = b"log of commits\n"
"""Before what is signed: a signature says what it is of."""


class CommitLogWriter:
    """Adds to the log of one lineage. Nothing is read or made before there is something to add. Thread-safe; blocks on I/O.

    Args:
        folder: of the job.
        lineage: whose commits these are.
        ancestors: where it began.
    """

    def __init__(self, folder: StatePath, lineage: str, ancestors: Sequence[Fork]) -> None:
        self._root = folder
        self._folder = folder / COMMITS_FOLDER
        self._lineage = lineage
        self._ancestors = tuple(ancestors)
        self._guard = threading.Lock()
        self._lines: list[bytes] = []
        self._file: StatePath | None = None
        self._complete_from = 0
        self._last: frozenset[str] = frozenset()

    def add(self, commits: Iterable[LoggedCommit], oldest_needed: int | None = None) -> None:
        """Note commits before they are made, durably; those that the call before noted are left out.

        Args:
            commits: what will be visible.
            oldest_needed: the oldest checkpoint of the lineage that can be gone back to; None: not known.

        Raises:
            StateError: the log cannot be written.
        """
        with self._guard:
            listed = [_new(entry, self._last) for entry in commits]
            listed = [entry for entry in listed if entry.committables]
            if not listed:
                return
            self._append([_line({"commit": _document(entry)}) for entry in listed])
            self._last = frozenset(c.commit_id for entry in listed for c in entry.committables)
            if len(self._lines) > MOST_LINES:
                self._roll(oldest_needed)

    def add_savepoint(self, checkpoint_id: int, path: str) -> None:
        """Note a savepoint: as long as it is there, what was committed after it stays in the log. Raises StateError."""
        with self._guard:
            self._append([_line({"savepoint": {"checkpoint_id": checkpoint_id, "path": path}})])

    def _append(self, lines: Sequence[bytes]) -> None:
        if self._file is None:
            self._folder.make_folder()
            self._root.sync_folder()
            self._file = self._folder / f"{self._lineage}-{uuid.uuid4().hex[:12]}{_SUFFIX}"
        if not self._lines:
            self._lines.append(_header(self._lineage, self._ancestors, self._complete_from))
        self._lines += lines
        self._file.write_atomically(_written(b"".join(self._lines)))
        self._folder.sync_folder()

    def _roll(self, oldest_needed: int | None) -> None:
        """Begin a new file; delete those that nothing needs."""
        self._lines, self._file = [], None
        if oldest_needed is None:
            return
        files = {path: content for path, content in _files(self._folder) if content.log.lineage == self._lineage}
        living = {
            number: path
            for content in files.values()
            for number, path in content.savepoints.items()
            if has_metadata(resolve(path))
        }
        floor = min([oldest_needed, *living])
        old = [
            p for p, c in files.items() if all(e.checkpoint_id <= floor for e in c.log.commits) and not c.log.returns
        ]
        if not old:
            return
        self._complete_from = floor
        self._append([_line({"savepoint": {"checkpoint_id": n, "path": p}}) for n, p in sorted(living.items())])
        for path in old:
            (self._folder / path).remove_file()


class _Content:
    """What one file says."""

    def __init__(self, log: LineageLog, savepoints: dict[int, str]) -> None:
        self.log = log
        self.savepoints = savepoints


def note_return(folder: StatePath, lineage: str, event: WentBack) -> None:
    """Note in the log of a lineage, whoever writes that, that what it committed is taken back.

    Raises:
        StateError: it cannot be written.
    """
    place = folder / COMMITS_FOLDER
    place.make_folder()
    name = f"{lineage}{_BACK}{uuid.uuid4().hex[:12]}{_SUFFIX}"
    (place / name).write_atomically(encoded_note(lineage, event=event))
    place.sync_folder()


def has_commit_log(folder: StatePath, lineage: str) -> bool:
    """Whether the log that a lineage kept is in a job's folder; that it was gone back in it, others may have noted."""
    names = [e.name for e in (folder / COMMITS_FOLDER).entries()]
    return any(n.startswith(f"{lineage}-") and not n.startswith(f"{lineage}{_BACK}") for n in names)


def read_commit_logs(folder: StatePath) -> dict[str, LineageLog]:
    """The logs in a job's folder by lineage; none if there is no folder.

    Raises:
        StateError: a file is damaged or cannot be read, or there is a key and it is not signed by that.
    """
    return merged_logs(replace(content.log, folder=folder.uri) for _, content in _files(folder / COMMITS_FOLDER))


def merged_logs(parts: Iterable[LineageLog]) -> dict[str, LineageLog]:
    """Logs by lineage, from parts of them. What is the same in two parts is there twice."""
    logs: dict[str, LineageLog] = {}
    for part in parts:
        known = logs.get(part.lineage, LineageLog(part.lineage, ""))
        logs[part.lineage] = LineageLog(
            part.lineage,
            known.folder or part.folder,
            known.ancestors or part.ancestors,
            max(known.complete_from, part.complete_from),
            (*known.commits, *part.commits),
            (*known.returns, *part.returns),
        )
    return {
        lineage: replace(log, commits=tuple(sorted(log.commits, key=lambda e: e.checkpoint_id)))
        for lineage, log in logs.items()
    }


def encoded_note(lineage: str, ancestors: Sequence[Fork] = (), event: WentBack | None = None) -> bytes:
    """A log that says where a lineage began, or that it was gone back in it, for places other than a job's folder."""
    lines = _header(lineage, ancestors, 0)
    return _written(lines if event is None else lines + _line({"back": {"to": event.to, "before": event.before}}))


def decoded_note(place: str, content: bytes) -> LineageLog:
    """What `encoded_note` gave, found at `place`.

    Raises:
        StateError: it is damaged, or there is a key and it is not signed by that.
    """
    return _content(place, content).log


def _files(folder: StatePath) -> list[tuple[str, _Content]]:
    found = []
    for entry in folder.entries():
        if entry.is_folder or not entry.name.endswith(_SUFFIX):
            continue
        content = (folder / entry.name).read_bytes()
        if content is not None:  # its owner deleted it meanwhile: what it said is in a newer one
            found.append((entry.name, _content(folder / entry.name, content)))
    return found


def _written(lines: bytes) -> bytes:
    """The lines of a file, behind their signature if there is a key."""
    key = state_key()
    return lines if key is None else _line({"signature": signature(key, _SIGNED + lines)}) + lines


def _unsigned(location: StatePath | str, content: bytes) -> bytes:
    """The lines of a file without its signature, which is checked if there is a key."""
    key = state_key()
    first, _, rest = content.partition(b"\n")
    given = _checked(first).get("signature")
    if key is not None:
        check_signature(key, _SIGNED + rest, None if given is None else str(given), f"'{location}'")
    return content if given is None else rest


def _content(location: StatePath | str, content: bytes) -> _Content:
    try:
        content = _unsigned(location, content)
        lines = [_checked(line) for line in content.splitlines()]
        header = lines[0]
        return _Content(
            LineageLog(
                plain_name(str(header["lineage"]), "the lineage"),
                "",
                tuple(
                    Fork(plain_name(str(lineage), "a lineage"), int(number)) for lineage, number in header["ancestors"]
                ),
                int(header["complete_from"]),
                tuple(_commit(line["commit"]) for line in lines[1:] if "commit" in line),
                tuple(WentBack(int(e["back"]["to"]), int(e["back"]["before"])) for e in lines[1:] if "back" in e),
            ),
            {int(e["savepoint"]["checkpoint_id"]): str(e["savepoint"]["path"]) for e in lines[1:] if "savepoint" in e},
        )
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise StateError(
            f"'{location}' is damaged: what was committed after the checkpoints of this folder is not known",
            hint="put the file back from a copy, or accept that rows may be written twice with --committed-after keep",
        ) from error


def _header(lineage: str, ancestors: Sequence[Fork], complete_from: int) -> bytes:
    listed = [[fork.lineage, fork.checkpoint_id] for fork in ancestors]
    return _line({"lineage": lineage, "ancestors": listed, "complete_from": complete_from})


def _line(document: Document) -> bytes:
    text = orjson.dumps(document)
    return f"{zlib.crc32(text):08x} ".encode() + text + b"\n"


def _checked(line: bytes) -> Document:
    checksum, _, text = line.partition(b" ")
    if int(checksum, 16) != zlib.crc32(text):
        raise ValueError("the checksum is wrong")
    document: Document = orjson.loads(text)
    return document


def _document(entry: LoggedCommit) -> Document:
    return {
        "checkpoint_id": entry.checkpoint_id,
        "operator_id": entry.operator_id,
        "sink": entry.sink,
        "committables": [[c.commit_id, dict(c.payload)] for c in entry.committables],
    }


def _commit(document: Document) -> LoggedCommit:
    return LoggedCommit(
        int(document["checkpoint_id"]),
        str(document["operator_id"]),
        str(document["sink"]),
        tuple(Committable(str(commit_id), dict(payload)) for commit_id, payload in document["committables"]),
    )


def _new(entry: LoggedCommit, known: frozenset[str]) -> LoggedCommit:
    return replace(entry, committables=tuple(c for c in entry.committables if c.commit_id not in known))
