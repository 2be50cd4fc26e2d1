"""Who leads: one at a time, and the next one knows what became of the one before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from flowrun.errors import StateError
from flowrun.state.storage.leadership import Leadership
from flowrun.state.storage.state_path import StatePath, resolve


def folder_of(path: Path) -> StatePath:
    return resolve(str(path)) / "job"


def test_one_leads_until_it_closes(tmp_path: Path) -> None:
    with closing(Leadership(folder_of(tmp_path))) as first, closing(Leadership(folder_of(tmp_path))) as second:
        assert first.leader() is None
        assert first.try_lead()
        first.begin()
        assert first.try_lead(), "who leads goes on leading"
        assert not second.try_lead()
        known = second.leader()
        assert known is not None
        assert (known.pid, known.ended) == (os.getpid(), None)
        first.close()
        assert second.try_lead()


def test_how_the_job_ended_outlasts_its_leader(tmp_path: Path) -> None:
    with closing(Leadership(folder_of(tmp_path))) as first:
        assert first.try_lead()
        first.begin()
        first.end("finished")
    with closing(Leadership(folder_of(tmp_path))) as second:
        assert second.try_lead()
        known = second.leader()
        assert known is not None
        assert known.ended == "finished"
        second.begin()
        again = second.leader()
        assert again is not None
        assert again.ended is None


def test_the_lock_is_gone_with_its_process(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom flowrun.state.storage.leadership import Leadership\n"
        "from flowrun.state.storage.state_path import resolve\n"
        "lead = Leadership(resolve(sys.argv[1]) / 'job')\nlead.try_lead()\nlead.begin()\nprint('leads', flush=True)\n"
        "sys.stdin.read()\n"
    )
    root = str(Path(__file__).parents[3])
    other = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": root},
    )  # fmt: skip
    assert other.stdout is not None
    assert other.stdout.readline() == "leads\n"
    with closing(Leadership(folder_of(tmp_path))) as lead:
        assert not lead.try_lead()
        other.send_signal(signal.SIGKILL)
        other.communicate()
        assert lead.try_lead()
        known = lead.leader()
        assert known is not None
        assert (known.pid, known.ended) == (other.pid, None)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"host": "h"}'])
def test_a_note_that_its_writer_did_not_finish_is_none(tmp_path: Path, content: bytes) -> None:
    with closing(Leadership(folder_of(tmp_path))) as lead:
        (tmp_path / "job" / ".leader").write_bytes(content)
        assert lead.leader() is None


def test_where_there_are_no_locks_there_is_no_standby() -> None:
    bucket = StatePath(pafs._MockFileSystem(), "bucket/job", "s3://bucket/job")  # type: ignore[attr-defined]
    with pytest.raises(StateError, match="has none"):
        Leadership(bucket)
