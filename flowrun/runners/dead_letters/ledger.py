"""What was replayed of a pipeline's dead letters: a durable record, which one replay at a time holds.

It is a file of JSON lines that is only added to. A replay writes down what it is about to do, does it in one step of the system that it
writes to, and writes down that it is done. Who comes next asks that system about a replay that has no end: it took place, or it never did.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import orjson

from flowrun.core.record import record
from flowrun.core.shapes import Shape, anything, listed, members, text
from flowrun.errors import StateError

_FILE, _LOCK = "replayed.jsonl", "lock"
_ENTRY: Shape = members({"replay": text, "state": text}, later={"letters": listed(text), "target": anything})
_BEGUN, _DONE, _UNDONE = "begun", "done", "undone"


@record
class Replay:
    """One replay.

    Attributes:
        replay_id: unique.
        target: where the letters went, as its `ReplayTarget` says it.
        letters: their ids.
    """

    replay_id: str
    target: Mapping[str, Any]
    letters: tuple[str, ...]


class LetterLedger:
    """The record of a pipeline's replays, in a folder of its own. A context, in which nobody else changes it.

    Args:
        folder: on a disk; made if it is missing.

    Raises:
        StateError: another replay holds it, or it is damaged.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock: int | None = None
        self._begun: dict[str, Replay] = {}
        self._done: set[str] = set()

    def __enter__(self) -> LetterLedger:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._release()
            raise StateError(
                f"dead letters of this pipeline are being replayed already ('{self._folder}' is locked)",
                hint="wait until that replay has ended",
            ) from None
        try:
            self._read(mends=True)
        except BaseException:
            self._release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def replayed(self) -> frozenset[str]:
        """The ids of all letters that were replayed."""
        return frozenset(self._done)

    @property
    def unfinished(self) -> Sequence[Replay]:
        """Replays that were begun, and of which it is not known what became of them."""
        return tuple(self._begun.values())

    def begin(self, replay: Replay) -> None:
        """Write down what is about to be done; it is on the disk when this returns."""
        self._add({"replay": replay.replay_id, "state": _BEGUN, "letters": replay.letters, "target": replay.target})
        self._begun[replay.replay_id] = replay

    def end(self, replay: Replay, *, took_place: bool) -> None:
        """Write down what became of it."""
        self._add({"replay": replay.replay_id, "state": _DONE if took_place else _UNDONE})
        self._take(replay.replay_id, took_place=took_place)

    def _take(self, replay_id: str, *, took_place: bool) -> None:
        replay = self._begun.pop(replay_id, None)
        if took_place and replay is not None:
            self._done.update(replay.letters)

    def _add(self, entry: Mapping[str, object]) -> None:
        path = self._folder / _FILE
        is_new = not path.exists()
        with path.open("ab") as file:
            file.write(orjson.dumps(entry) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            descriptor = os.open(self._folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _read(self, *, mends: bool) -> None:
        path = self._folder / _FILE
        data = path.read_bytes() if path.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        if mends and len(whole) < len(data):  # a process was killed while it wrote: nothing had been done yet
            os.truncate(path, len(whole))
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                entry = orjson.loads(line)
                _ENTRY(entry, "the entry")
            except ValueError as error:
                raise StateError(
                    f"the record of replays is damaged: {path}, line {number}: {error}",
                    hint="restore the file from a copy; without it letters could be replayed twice",
                ) from error
            if entry["state"] == _BEGUN:
                found = Replay(entry["replay"], entry["target"], tuple(entry["letters"]))
                self._begun[found.replay_id] = found
            else:
                self._take(entry["replay"], took_place=entry["state"] == _DONE)


def replayed_letters(folder: Path) -> frozenset[str]:
    """The ids of letters that were replayed, as far as it is known; nothing is locked or changed.

    Raises:
        StateError: the record is damaged.
    """
    ledger = LetterLedger(folder)
    ledger._read(mends=False)
    return ledger.replayed
