"""The programs of docs/datastream.md run as the page says, the first one with a server that sends lines."""

from __future__ import annotations

import ast
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from flowrun.datastream import DataStream, KeyedStream, StreamExecutionEnvironment, WindowedStream

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "datastream.md").read_text(encoding="utf-8")
PROGRAMS = dict(re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE))


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    for name, text in PROGRAMS.items():
        (tmp_path / name).write_text(f"# {name}\n{text}")
    return tmp_path


def run(folder: Path, *command: str) -> str:
    environment = {"PYTHONPATH": str(ROOT), "PATH": "", "FLOWRUN_RUNTIME_DIR": str(folder / "run")}
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("command", [("words.py",), ("-m", "flowrun", "run", "words.py", "--quiet")])
def test_words_of_a_socket_are_counted(programs: Path, command: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def send() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"to be or not\nto be\n")

        sender = threading.Thread(target=send)
        sender.start()
        text = (programs / "words.py").read_text().replace('"9999"', f'"{port}"').replace('"localhost"', '"127.0.0.1"')
        (programs / "words.py").write_text(text)
        counted = run(programs, *command).splitlines()
        sender.join()
    assert counted == ["+I[to, 1]", "+I[be, 1]", "+I[or, 1]", "+I[not, 1]", "+I[to, 2]", "+I[be, 2]"]


def test_functions_of_rows_and_of_batches_give_the_same(programs: Path) -> None:
    by_row, by_batch = map(ast.literal_eval, run(programs, "shares.py").splitlines())
    assert by_row == by_batch == [{"user": "u1", "euros": 2.5}, {"user": "u2", "euros": 10.0}]


def test_a_source_function(programs: Path) -> None:
    assert run(programs, "ticks.py").splitlines() == [f"+I[{n}]" for n in (0, 25, 50, 75)]
    assert run(programs, "-m", "flowrun", "run", "ticks.py", "-q", "--var", "COUNT=30").splitlines() == [
        "+I[0]",
        "+I[25]",
    ]


def test_event_time(programs: Path) -> None:
    bounded, generated = map(ast.literal_eval, run(programs, "minutes.py").splitlines())
    assert sorted(bounded) == sorted(generated) == [("a", 21.0), ("b", 18.0)]


def test_every_name_of_the_last_table_is_there() -> None:
    rows = re.findall(r"^\| `[^|]*\| (`[^|]*) \|$", PAGE.partition("## From Flink's names")[2], re.MULTILINE)
    names = {name for row in rows for name in re.findall(r"[a-z_]+", row) if name != "…"}
    places = (StreamExecutionEnvironment, DataStream, KeyedStream, WindowedStream)
    assert len(rows) == 11
    assert [n for n in sorted(names) if not any(hasattr(place, n) for place in places)] == []
