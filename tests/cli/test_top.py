"""`flowrun top`: one table for scripts, JSON, and a screen that is left as it was found."""

from __future__ import annotations

import json
import termios
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.end_to_end.conftest import Command
from tests.end_to_end.terminals import HIDE_CURSOR, SHOW_CURSOR, Terminal
from tests.rest.control_fakes import FakeJob, controlled


@pytest.fixture
def jobs(own_registry: Path) -> Iterator[dict[str, FakeJob]]:
    running = {"orders": FakeJob("aaaa1111" * 4), "payments": FakeJob("aabb2222" * 4)}
    with ExitStack() as stack:
        for name, job in running.items():
            stack.enter_context(controlled(job, own_registry, name=name))
        yield running


Opened = Callable[[str], Terminal]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    """`flowrun top` on a terminal, with the time between two looks."""
    terminals: list[Terminal] = []

    def open_top(interval: str) -> Terminal:
        terminals.append(Terminal(tmp_path, "top", "-d", interval))
        return terminals[-1]

    yield open_top
    for terminal in terminals:
        terminal.close()


def test_once_is_a_table_for_scripts(flowrun: Command, jobs: dict[str, FakeJob]) -> None:
    lines = flowrun("top", "--once", "-d", "0.1").out.splitlines()
    assert lines[0].split()[:4] == ["id", "name▲", "state", "rows/s"]
    assert [line.split()[:3] for line in lines[2:]] == [
        ["aaaa1111", "orders", "running"],
        ["aabb2222", "payments", "running"],
    ]
    assert not {"\x1b"} & set("".join(lines))


def test_json_has_all_that_is_known(flowrun: Command, jobs: dict[str, FakeJob]) -> None:
    found = json.loads(flowrun("top", "--json", "-d", "0.1").out)
    assert [job["name"] for job in found] == ["orders", "payments"]
    assert (found[0]["rows_read"], found[0]["state_bytes"], found[0]["restarts"]) == (6_000, 2_000, 2)


def test_nothing_runs(flowrun: Command) -> None:
    assert flowrun("top", "--once").out == "no job runs\n"
    assert json.loads(flowrun("top", "--json").out) == []


@pytest.mark.exhaustive
def test_the_screen_is_refreshed_sorted_and_left_as_it_was(jobs: dict[str, FakeJob], opened: Opened) -> None:
    terminal = opened("0.2")
    terminal.read_until("rows/s▼")
    terminal.read_until("payments")
    for key, shown in (("s", "lag▼"), ("r", "lag▲"), ("n", "name▲")):
        terminal.type(key)
        terminal.read_until(shown)
    jobs["orders"].restarts = 77
    terminal.read_until("77")
    terminal.type("q")
    terminal.read_until("")
    assert terminal.process.wait(timeout=30) == 0
    assert terminal.raw.count("\x1b[?1049h") == terminal.raw.count("\x1b[?1049l") == 1, "its own screen"
    assert terminal.raw.rindex(SHOW_CURSOR) > terminal.raw.rindex(HIDE_CURSOR)


@pytest.mark.exhaustive
def test_ctrl_c_and_a_new_size_leave_the_terminal_in_order(jobs: dict[str, FakeJob], opened: Opened) -> None:
    terminal = opened("30")
    terminal.read_until("rows/s▼")
    before = terminal.modes()
    assert not before & termios.ECHO
    terminal.resize(24, 200)
    terminal.read_until("busiest vertex")
    terminal.type("\x03")
    terminal.read_until("")
    assert terminal.process.wait(timeout=30) == 130
    assert terminal.modes() & termios.ECHO
    assert terminal.raw.rindex(SHOW_CURSOR) > terminal.raw.rindex(HIDE_CURSOR)
    assert "Traceback" not in terminal.shown
