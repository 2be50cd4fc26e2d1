"""Gates of a test that rows pass in other processes: these ask the test's process, whose gates hold them.

A process that finds `$FLOWRUN_TEST_GATES`, as `HOST:PORT`, asks there; each of its threads has a connection of its own. One line asks,
`NAME ROWS`; one line answers, empty or what went wrong.
"""

from __future__ import annotations

import os
import socket
import socketserver
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO, Protocol

PLACE = "FLOWRUN_TEST_GATES"
CONNECT_S = 10.0


class PassedByRows(Protocol):
    """A gate; see `tests.recovery.gates.Gate`."""

    def passed(self, rows: int) -> None: ...


class _OfThread(threading.local):
    """The connection of a thread."""

    lines: IO[str] | None = None


_OWN = _OfThread()


def is_far() -> bool:
    """Whether the gates of this process are those of another one."""
    return PLACE in os.environ


def pass_far(name: str, rows: int) -> None:
    """Rows come by a gate of another process; returns once they may go on.

    Raises:
        OSError: the gate fails them.
    """
    if _OWN.lines is None:
        host, _, port = os.environ[PLACE].rpartition(":")
        _OWN.lines = socket.create_connection((host, int(port)), CONNECT_S).makefile("rw", encoding="utf-8")
    _OWN.lines.write(f"{name} {rows}\n")
    _OWN.lines.flush()
    answer = _OWN.lines.readline()
    if answer != "\n":
        raise OSError(answer.strip() or "the gates are gone")


@contextmanager
def serving(gates: Mapping[str, PassedByRows]) -> Iterator[str]:
    """A context in which processes of this machine may ask gates of this one; gives the value of `$FLOWRUN_TEST_GATES`."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):  # a process that is killed while it is held
                for line in self.rfile:
                    name, _, rows = line.decode().rpartition(" ")
                    answer = ""
                    try:
                        gates[name].passed(int(rows))
                    except Exception as error:
                        answer = f"{type(error).__name__}: {error}".replace("\n", " ")
                    self.wfile.write(f"{answer}\n".encode())

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads, server.block_on_close = True, False
        thread = threading.Thread(target=server.serve_forever, name="far-gates", daemon=True)
        thread.start()
        host, port = server.server_address[:2]
        try:
            yield f"{host!s}:{port}"
        finally:
            server.shutdown()
            thread.join()
