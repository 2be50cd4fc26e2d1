"""Reads what the server sends in a COPY, by libpq itself: a message is a call of it, and no other Python runs for one."""

from __future__ import annotations

import select
import time
from typing import Any


def read_copy(connection: Any, wait_ms: int, most: int, most_bytes: int) -> tuple[list[Any], bool]:
    """The messages that have come.

    Args:
        connection: of `psycopg.pq`, in a COPY.
        wait_ms: how long to wait for the first one, ms.
        most: messages to give.
        most_bytes: of messages behind which no further one is given.

    Returns:
        Messages, as bytes or views of them, in their order: none if none came in this time. And whether the COPY ends behind them: the
        connection's next result says whether it has failed.

    Raises:
        psycopg.Error: the connection is lost.
    """
    deadline = time.monotonic() + wait_ms / 1000
    poll = select.poll()
    poll.register(connection.socket, select.POLLIN)
    found: list[Any] = []
    size = 0
    get = connection.get_copy_data
    while len(found) < most and size < most_bytes:
        length, data = get(1)
        if length > 0:
            found.append(data)
            size += length
        elif length < 0:
            return found, True
        else:
            left = 0.0 if found else max(deadline - time.monotonic(), 0.0)
            if not poll.poll(left * 1000):
                break
            connection.consume_input()
    return found, False
