"""The versions of a pipeline as they are kept in the folder of its job, in `_versions`: a file a version, and one for the last upgrade.

Who may write: the process that owns the job's folder, and, of an upgrade, whoever has it in hand. A file appears whole. With a key of
state (`FLOWRUN_STATE_KEY`) every file is signed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import msgspec

from flowrun.core.clock import Clock
from flowrun.core.record import record
from flowrun.errors import PipelineError, StateError
from flowrun.masking import masked
from flowrun.runners.versions.records import Outcome, Phase, PipelineVersion, Upgrade
from flowrun.state.storage.lock import FolderLock
from flowrun.state.storage.signing import check_signature, signature, state_key
from flowrun.state.storage.state_path import StatePath

VERSIONS_FOLDER = "_versions"
"""Name of the folder, in a job's folder."""
SAVEPOINTS_FOLDER = "savepoints"
"""Name of the folder, in that, of the savepoints with which versions ended."""
KEPT_VERSIONS = 100
"""As many are kept; the oldest make room."""
_UPGRADE_FILE = "upgrade.json"
_SUFFIX = ".json"
_DIGITS = 6

T = TypeVar("T")


@record
class _Signed:
    """A file: its content as JSON text, and its signature if there is a key."""

    content: str
    signature: str | None = None


class VersionHistory:
    """The versions of one job.

    Args:
        job_folder: of the job.
    """

    def __init__(self, job_folder: StatePath) -> None:
        self.job_folder = job_folder
        self._folder = job_folder / VERSIONS_FOLDER

    @property
    def savepoints(self) -> str:
        """The folder of the savepoints with which versions end."""
        return (self._folder / SAVEPOINTS_FOLDER).uri

    def numbers(self) -> list[int]:
        """Of the versions that are kept, in order. Raises StateError: the folder cannot be read."""
        stems = [e.name.removesuffix(_SUFFIX) for e in self._folder.entries() if e.name.endswith(_SUFFIX)]
        return sorted(int(stem) for stem in stems if stem.isascii() and stem.isdecimal())

    def versions(self) -> Sequence[PipelineVersion]:
        """All that are kept, in order. Raises StateError: one cannot be read, or was altered."""
        return [self.version(number) for number in self.numbers()]

    def version(self, number: int) -> PipelineVersion:
        """One version.

        Raises:
            PipelineError: there is none of that number.
            StateError: it cannot be read, or was altered.
        """
        found = self._read(self._file(number), PipelineVersion)
        if found is None:
            there = self.numbers()
            kept = f"there are {there[0]} to {there[-1]}" if there else "none is kept"
            raise PipelineError.of(f"there is no version {number} in '{self._folder}'", f"{kept}: see flowrun history")
        return found

    def latest(self) -> PipelineVersion | None:
        """The last one that ran for good, not only on trial; None: none is kept."""
        for number in reversed(self.numbers()):
            found = self.version(number)
            if found.outcome in (Outcome.RAN, Outcome.ACCEPTED):
                return found
        return None

    def add(self, version: PipelineVersion) -> PipelineVersion:
        """Keep a version under the next number; gives it with that. Raises StateError: it cannot be written."""
        known = self.numbers()
        added = replace(version, number=max(known, default=0) + 1)
        self._folder.make_folder()
        self._write(self._file(added.number), added)
        used = self.upgrade()
        needed = set() if used is None else {used.old, used.new}
        for number in known[: max(len(known) + 1 - KEPT_VERSIONS, 0)]:
            if number not in needed:
                self._file(number).remove_quietly()
        return added

    def note_outcome(self, number: int, outcome: Outcome, reason: str | None = None) -> None:
        """What became of a version. Raises StateError: it cannot be written."""
        version = self.version(number)
        if (version.outcome, version.reason) != (outcome, reason):
            self._write(self._file(number), replace(version, outcome=outcome, reason=_shown(reason)))

    def note_origin(self, number: int, restored_from: str) -> None:
        """At which savepoint or checkpoint a version begins. Raises StateError: it cannot be written."""
        self._write(self._file(number), replace(self.version(number), restored_from=restored_from))

    def note_running(self, version: PipelineVersion) -> PipelineVersion:
        """A version runs as a job of its own; it is added unless it is the last one that ran. Raises StateError: it cannot be written."""
        last = self.latest()
        if last is not None and last.is_same_as(version):
            return last
        return self.add(version)

    def upgrade(self) -> Upgrade | None:
        """The last upgrade; None: there was none. Raises StateError: it cannot be read, or was altered."""
        return self._read(self._folder / _UPGRADE_FILE, Upgrade)

    def write_upgrade(self, upgrade: Upgrade) -> Upgrade:
        """Note how far an upgrade is, durably; gives it. Raises StateError: it cannot be written."""
        self._folder.make_folder()
        upgrade = replace(upgrade, reason=_shown(upgrade.reason), hint=_shown(upgrade.hint))
        self._write(self._folder / _UPGRADE_FILE, upgrade)
        return upgrade

    def supersede(self) -> Upgrade | None:
        """Somebody has started the job by other means: an upgrade that was not finished never will be; gives it, if there was one.

        Raises:
            StateError: it cannot be read or written.
        """
        open_one = self.upgrade()
        if open_one is None or not open_one.phase.is_open:
            return None
        return self.write_upgrade(
            replace(open_one, phase=Phase.SUPERSEDED, reason="the job was started by other means")
        )

    def lock(self, clock: Clock) -> FolderLock:
        """Have an upgrade in hand, until the lock is released.

        Raises:
            StateError: somebody else has one in hand.
        """
        self._folder.make_folder()
        try:
            return FolderLock(self._folder, clock)
        except StateError as error:
            who = error.message.partition("is in use by ")[2]
            if not who:
                raise
            raise StateError(
                f"another flowrun apply has this job in hand: {who}",
                hint="wait until it is done; flowrun history shows what it came to",
            ) from error

    def _file(self, number: int) -> StatePath:
        return self._folder / f"{number:0{_DIGITS}d}{_SUFFIX}"

    def _write(self, file: StatePath, value: PipelineVersion | Upgrade) -> None:
        content = msgspec.json.encode(value).decode()
        key = state_key()
        signed = None if key is None else signature(key, _to_sign(file, content))
        file.write_atomically(msgspec.json.format(msgspec.json.encode(_Signed(content, signed)), indent=2))
        self._folder.sync_folder()

    def _read(self, file: StatePath, kind: type[T]) -> T | None:
        found = file.read_bytes()
        if found is None:
            return None
        try:
            signed = msgspec.json.decode(found, type=_Signed)
            value = msgspec.json.decode(signed.content, type=kind)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise StateError(
                f"'{file}' is damaged, or of another version of flowrun: {error}",
                hint="take it away: the state itself does not need it",
            ) from error
        key = state_key()
        if key is not None:
            check_signature(key, _to_sign(file, signed.content), signed.signature, f"'{file}'")
        return value


def _shown(text: str | None) -> str | None:
    return None if text is None else masked(text)


def _to_sign(file: StatePath, content: str) -> bytes:
    return f"version of a pipeline\n{file.name}\n{content}".encode()
