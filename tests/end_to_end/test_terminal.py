"""What a user sees on a terminal of 80 columns while a job is interrupted."""

from __future__ import annotations

import re
from pathlib import Path

from tests.end_to_end.terminals import HIDE_CURSOR, SHOW_CURSOR, Terminal

SLOW = """
name: slow
sources:
  rows: {connector: datagen, rows-per-second: 1000000000, schema: {x: INT}}
sinks:
  out: {from: rows, connector: blackhole, rows-per-second: 1, parallelism: 2}
"""


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
