"""Readers beside the owner of a job's folder: while one reads, the owner deletes nothing.

A lease is a small file in the job's folder that names a reader's process. The owner looks for leases before it forgets older checkpoints,
and catches up later. A lease of a process that died does not count, nor one of another machine after a day. A reader who may not write
there reads without a lease, and may find that a checkpoint has gone meanwhile.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum

import orjson

from flowrun.errors import StateError
from flowrun.state.storage.names import LEASES_FOLDER
from flowrun.state.storage.state_path import StatePath

_LONGEST_S = 24 * 3600

_held: ContextVar[dict[str, StatePath] | None] = ContextVar("held", default=None)


@contextmanager
def holding_leases() -> Iterator[None]:
    """In here, what is found in job folders by `lease` stays until the end."""
    token = _held.set({})
    try:
        yield
    finally:
        held = _held.get() or {}
        _held.reset(token)
        for file in held.values():
            file.remove_quietly()


def lease(folder: StatePath) -> None:
    """Keep the owner of a job's folder from deleting anything, until the end of `holding_leases`; outside of that nothing happens."""
    held = _held.get()
    if held is None or folder.uri in held:
        return
    file = folder / LEASES_FOLDER / f"{uuid.uuid4().hex}.json"
    reader = {"host": socket.gethostname(), "pid": os.getpid(), "since": time.time()}
    try:
        file.parent.make_folder()
        file.write_atomically(orjson.dumps(reader))
    except StateError:  # a folder that may only be read: without a lease, then
        return
    held[folder.uri] = file


def is_leased(folder: StatePath) -> bool:
    """Whether somebody reads in a job's folder; removes the leases of those who died.

    Raises:
        StateError: the folder cannot be listed.
    """
    place = folder / LEASES_FOLDER
    living = False
    for entry in place.entries():
        if entry.name.endswith(".json"):
            file = place / entry.name
            state = _state(file.read_bytes())
            living = living or state is _Reader.LIVES
            if state is _Reader.DEAD:
                file.remove_quietly()
    return living


class _Reader(Enum):
    LIVES = 1
    DEAD = 2
    OWNER = 3


def _state(content: bytes | None) -> _Reader:
    if content is None:
        return _Reader.DEAD
    try:
        reader = orjson.loads(content)
        host, pid, since = str(reader["host"]), int(reader["pid"]), float(reader["since"])
    except (ValueError, KeyError, TypeError):
        return _Reader.DEAD
    if host != socket.gethostname():
        return _Reader.LIVES if time.time() - since < _LONGEST_S else _Reader.DEAD
    if pid == os.getpid():  # the owner itself: it keeps what it restores from
        return _Reader.OWNER
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return _Reader.DEAD
    except PermissionError:  # somebody else's process, which lives
        return _Reader.LIVES
    return _Reader.LIVES
