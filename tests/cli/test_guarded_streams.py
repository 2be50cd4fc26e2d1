"""What terminals get: nothing from data, files or metadata that they would obey; elsewhere texts stay as they are."""

from __future__ import annotations

import io
import subprocess
import sys
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console
from rich.live_render import LiveRender

from flowrun.cli.guarded_streams import GuardedStream, guarded_streams
from flowrun.cli.state.query import write_result
from flowrun.cli.views.tables import table_text
from flowrun.masking import learn_secret
from tests.slices import everyday

EVIL = "a\x1b]0;title\x07b\x1b[2Jc\x9b31md\re\u202ef"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def written(stream: io.StringIO, text: str) -> str:
    assert GuardedStream(stream).write(text) == len(text)
    return stream.getvalue()


def test_a_terminal_gets_no_control_sequences_of_others() -> None:
    shown = written(Terminal(), EVIL + "\n")
    assert shown == "a\\u001b]0;title\\u0007b\\u001b[2Jc\\u009b31md\\u000de\\u202ef\n"


def test_colours_and_live_views_still_work() -> None:
    ours = "\x1b[1;31merror:\x1b[0m x\n\r\x1b[2K\x1b[1A\x1b[2K\x1b[?25l\x1b[?25h\tüñ\n"
    assert written(Terminal(), ours) == ours


def test_what_erases_a_live_view_is_not_shown() -> None:
    drawn = LiveRender("one\ntwo")
    Console(file=io.StringIO(), force_terminal=True, width=40).print(drawn)
    for moves in (str(drawn.position_cursor()), str(drawn.restore_cursor())):
        assert written(Terminal(), moves) == moves


def test_files_and_pipes_get_the_text_as_it_is() -> None:
    assert written(io.StringIO(), EVIL) == EVIL


def test_secrets_are_masked_everywhere() -> None:
    learn_secret("hunter2")
    assert written(io.StringIO(), "password hunter2\n") == "password ***\n"


def test_the_streams_are_given_back(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout, sys.stderr
    learn_secret("hunter2")
    with guarded_streams():
        print("hunter2 out")
        print("hunter2 err", file=sys.stderr)
    assert (sys.stdout, sys.stderr) == before
    assert capsys.readouterr() == ("*** out\n", "*** err\n")


@pytest.mark.parametrize(
    ("form", "shown"),
    [
        ("csv", '"name"\n"x\\u001b[2Jy\\u009b31m"\n'),
        ("json", '[\n  {\n    "name": "x\\u001b[2Jy\\u009b31m"\n  }\n]\n'),
    ],
)
def test_queried_rows_are_harmless_on_a_terminal(form: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", GuardedStream(terminal))
    write_result(pa.table({"name": ["x\x1b[2Jy\x9b31m"]}), form, None)
    assert terminal.getvalue() == shown


@pytest.mark.parametrize("form", ["csv", "json"])
def test_queried_rows_are_what_they_are_in_pipes_and_files(form: str, tmp_path: Path) -> None:
    program = (
        "import sys, pathlib, pyarrow as pa\n"
        "from flowrun.cli.guarded_streams import guarded_streams\n"
        "from flowrun.cli.state.query import write_result\n"
        "rows = pa.table({'name': ['x\\x1b[2Jy\\x9b31m']})\n"
        f"write_result(rows, '{form}', pathlib.Path('rows'))\n"
        f"with guarded_streams():\n    write_result(rows, '{form}', None)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, check=True, timeout=60)
    assert ran.stdout == (tmp_path / "rows").read_bytes()
    assert "\x9b31m".encode() in ran.stdout
    assert (b"x\x1b[2Jy" in ran.stdout) is (form == "csv")


@pytest.mark.parametrize(
    ("closed", "command"), everyday(product([">&-", "2>&-", "<&-", "<&- >&- 2>&-"], ["run", "validate"]), 3)
)
def test_closed_streams_change_nothing_but_what_is_seen(closed: str, command: str, tmp_path: Path) -> None:
    script = tmp_path / "s.sql"
    script.write_text(
        f"CREATE TABLE t (x INT) WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/out', 'format' = 'csv');\n"
        "INSERT INTO t VALUES (1), (2);\nSELECT * FROM (VALUES (3)) AS v (y);\n"
    )
    line = f'"{sys.executable}" -m flowrun {command} "{script}" {closed}'
    ran = subprocess.run(["sh", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert (ran.returncode, "failed" in ran.stdout + ran.stderr) == (0, False)
    rows = [line for file in sorted((tmp_path / "out").glob("part-*")) for line in file.read_text().splitlines()]
    assert rows == (["1", "2"] if command == "run" else [])


def test_cells_of_tables_are_harmless() -> None:
    assert table_text(["name"], [["x\x1b[1Ay\nz"]]) == "name\nx\\u001b[1Ay z"
