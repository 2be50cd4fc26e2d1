"""What a user sees on a terminal of 80 columns while a job is interrupted."""

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
SLOW = """
name: slow
sources:
  rows: {connector: datagen, rows-per-second: 1000000000, schema: {x: INT}}
sinks:
  out: {from: rows, connector: blackhole, rows-per-second: 1, parallelism: 2}
"""


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

    def press_ctrl_c(self) -> None:
        os.write(self._master, b"\x03")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)


def test_the_live_view_says_that_the_job_is_stopping_and_how_to_cancel(tmp_path: Path) -> None:
    (tmp_path / "slow.yaml").write_text(SLOW)
    terminal = Terminal(tmp_path, "run", "slow.yaml")
    try:
        terminal.read_until("Source: rows")
        assert "stopping" not in terminal.shown
        terminal.press_ctrl_c()
        terminal.read_until("stopping…")
        terminal.read_until("again to cancel")
        terminal.press_ctrl_c()
        terminal.read_until("")
        assert terminal.process.wait(timeout=30) == 130
    finally:
        terminal.close()
    assert "Traceback" not in terminal.shown
    assert "^C" not in terminal.shown
    assert terminal.raw.count(HIDE_CURSOR) <= terminal.raw.count(SHOW_CURSOR), "the cursor is there again"
    lines = [line for line in re.split(r"[\r\n]+", terminal.shown) if "stopping: " in line]
    assert not lines, "a line of its own would tear the view"
