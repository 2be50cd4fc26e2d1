"""Which changes a stream of rows may hold, and which a sink takes."""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol, runtime_checkable

from flowrun.core.provided import provides


class ChangelogMode(IntEnum):
    """Which row kinds occur on a stream; up to RETRACT a greater mode holds all that a smaller one does.

    >>> max(ChangelogMode.APPEND, ChangelogMode.RETRACT).name
    'RETRACT'
    """

    APPEND = 0
    """Only inserts."""
    UPDATE = 1
    """Inserts, and updates as −U/+U pairs: what was inserted never goes away."""
    RETRACT = 2
    """Deletes too."""
    UPSERT = 3
    """Rows by key: +I and +U both set the row of a key, whatever was there, and −D needs to know the key only: its other columns may
    be NULL. Only sources and FROM_CHANGELOG give such rows; `plan.changelog_nodes.ChangelogNormalize` makes them whole for others."""

    @property
    def kinds(self) -> str:
        """The row kinds, as they are written."""
        return ("[+I]", "[+I, -U, +U]", "[+I, -U, +U, -D]", "[+I, +U, -D]")[self]


class ChangesTaken(IntEnum):
    """Which changes a sink can write."""

    APPEND = 0
    """Only inserts."""
    UPSERT = 1
    """All, by the table's primary key: rows of one key must reach one subtask, in their order."""
    ALL = 2
    """All, as they come."""


@runtime_checkable
class ProducesChanges(Protocol):
    """A source whose rows may be updates and deletes; other sources only insert."""

    @property
    def changelog_mode(self) -> ChangelogMode:
        """What its readers emit."""
        ...


@runtime_checkable
class TakesChanges(Protocol):
    """A sink that can write more than inserts; other sinks cannot."""

    @property
    def changes_taken(self) -> ChangesTaken:
        """What its writers take."""
        ...


def mode_of_source(source: object) -> ChangelogMode:
    """What a source produces.

    >>> mode_of_source(object()).name
    'APPEND'
    """
    return source.changelog_mode if provides(source, ProducesChanges) else ChangelogMode.APPEND


def changes_taken_by(sink: object) -> ChangesTaken:
    """What a sink takes.

    >>> changes_taken_by(object()).name
    'APPEND'
    """
    return sink.changes_taken if isinstance(sink, TakesChanges) else ChangesTaken.APPEND
