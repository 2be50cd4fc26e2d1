"""While somebody reads in a job's folder its owner deletes nothing; afterwards it catches up."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from flowrun.state.storage.leases import holding_leases, is_leased, lease
from flowrun.state.storage.state_path import resolve

READER = """
import sys
from flowrun.state.storage.leases import holding_leases, lease
from flowrun.state.storage.state_path import resolve
with holding_leases():
    lease(resolve(sys.argv[1]))
    print("reading", flush=True)
    sys.stdin.read()
"""


def test_a_reader_in_another_process_counts_until_it_ends(tmp_path: Path) -> None:
    command = [sys.executable, "-c", READER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "reading\n"
        assert is_leased(resolve(str(tmp_path)))
        reader.communicate("")
    assert not is_leased(resolve(str(tmp_path)))
    assert not list((tmp_path / "_leases").iterdir())


def test_a_reader_that_was_killed_does_not_count(tmp_path: Path) -> None:
    command = [sys.executable, "-c", READER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        reader.stdout.readline()
        reader.kill()
        reader.communicate()
    assert list((tmp_path / "_leases").iterdir())
    assert not is_leased(resolve(str(tmp_path)))
    assert not list((tmp_path / "_leases").iterdir()), "and is cleared away"


def test_what_the_owner_reads_itself_does_not_hold_it_up(tmp_path: Path) -> None:
    with holding_leases():
        lease(resolve(str(tmp_path)))
        assert not is_leased(resolve(str(tmp_path)))
        assert len(list((tmp_path / "_leases").iterdir())) == 1
    assert not list((tmp_path / "_leases").iterdir())


def test_outside_of_a_reading_command_nothing_is_written(tmp_path: Path) -> None:
    lease(resolve(str(tmp_path)))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [b"", b"{", b'{"host": 1}', b"[]"])
def test_a_lease_that_says_nothing_does_not_count(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "_leases").mkdir()
    (tmp_path / "_leases" / "x.json").write_bytes(content)
    assert not is_leased(resolve(str(tmp_path)))
