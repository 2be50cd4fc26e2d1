"""A terminal on which a `flowrun` process runs, as a user has it."""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"


class Terminal:
    """A process on a terminal of 80 × 24."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
        environment |= {"TERM": "xterm-256color", "PYTHONPATH": str(Path(__file__).parents[2])}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "flowrun", *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=folder,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - so that Ctrl-C is typed, not sent
        )
        os.close(slave)
        self.raw = ""

    @property
    def shown(self) -> str:
        """All that was written so far, without colours and movements."""
        return ESCAPE.sub("", self.raw)

    def read_until(self, text: str, limit_s: float = 60) -> None:
        """Read on until something was shown; "" reads to the end."""
        deadline = time.monotonic() + limit_s
        while not text or text not in self.shown:
            left_s = deadline - time.monotonic()
            assert left_s > 0, self.shown[-2000:]
            if not select.select([self._master], [], [], left_s)[0]:
                continue
            try:
                piece = os.read(self._master, 65536)
            except OSError as error:
                if error.errno != errno.EIO:  # Linux: nobody has the other end open
                    raise
                piece = b""
            if not piece:
                assert not text, self.shown[-2000:]
                return
            self.raw += piece.decode(errors="replace")

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def press_ctrl_c(self) -> None:
        self.type("\x03")

    def resize(self, lines: int, columns: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def modes(self) -> int:
        """The local modes, such as `termios.ECHO`."""
        found: int = termios.tcgetattr(self._master)[3]
        return found

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)
