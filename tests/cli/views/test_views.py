"""What the live view, the plain lines and the summary say of a job."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console

from flowrun.cli.arguments import ViewOptions
from flowrun.cli.jobs import jobs_table
from flowrun.cli.logs import LogOptions
from flowrun.cli.views.checkpoint_text import recovery_text
from flowrun.cli.views.live_view import LiveView, status_table
from flowrun.cli.views.progress import ProgressLines
from flowrun.cli.views.summary import show_summary
from flowrun.cli.views.view import view_of
from flowrun.core.elements import CheckpointKind
from flowrun.runtime.checkpoint.events import CheckpointFigures, CheckpointsStatus
from flowrun.runtime.job_status import JobResult, JobStatus, VertexStatus
from flowrun.runtime.lifecycle import ExecutionState, JobState


def status(at_s: float, rows: int, pressure: float = 0.0) -> JobStatus:
    source = VertexStatus(
        "s",
        "Source: orders -> paid",
        2,
        {ExecutionState.RUNNING: 2},
        records_in=rows,
        records_out=rows,
        watermark=0,
        watermark_lag_ms=5_200,
        busy_ms_per_s=400.0,
        max_back_pressured_ms_per_s=pressure,
    )
    sink = VertexStatus("k", "out", 1, {ExecutionState.RUNNING: 1}, records_in=rows // 2)
    return JobStatus("j", "orders", JobState.RUNNING, int(at_s * 1e9), int(at_s * 1000), (source, sink))


def rendered(table: object) -> str:
    console = Console(width=140, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(table)
    console.file.close()
    return console.export_text()


def test_the_table_shows_rate_lag_load_and_back_pressure() -> None:
    text = rendered(status_table(status(2, 1_500_000, pressure=870), {"s": 750_000.0, "k": 1.0}))
    for part in ("orders  running  2.0 s", "1.5 M", "750.0 k", "5.2 s", "40 %", "87 %"):
        assert part in text, text


def test_the_live_view_works_out_rates_between_two_looks() -> None:
    console = Console(width=140, force_terminal=True, file=open("/dev/null", "w"))  # noqa: SIM115
    with LiveView(console) as view:
        view.update(status(1, 1000))
        view.update(status(2, 4000))
        assert view.rates["s"] == 3000
    console.file.close()


def test_plain_lines_come_every_five_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    lines = ProgressLines()
    for second in range(12):
        lines.update(status(second, second * 1000))
    said = capsys.readouterr().err.splitlines()
    assert [line.split("  ")[0] for line in said] == ["5.0 s", "10.0 s"]
    assert "Source: orders -> paid: 5.0 k rows, 1.0 k/s" in said[0]


def test_the_summary_names_what_was_dropped(capsys: pytest.CaptureFixture[str]) -> None:
    counted = {
        "per_minute": {"numLateRecordsDropped": 7, "numNullKeyRecordsDropped": 3},
        "sessions": {"numLateRecordsSideOutput": 298},
    }
    result = JobResult("j", "orders", JobState.FINISHED, 2000, status(2, 10_000).vertices, counted)
    show_summary(result, frozenset({"s"}))
    said = capsys.readouterr().err
    assert "orders: finished in 2.0 s, 10.0 k rows read (5.0 k/s)" in said
    assert "per_minute: 7 late rows dropped" in said
    assert "per_minute: 3 rows with NULL keys dropped" in said
    assert "sessions: 298 late rows sent to the late output" in said


def checkpoints(completed: int = 12, failed: int = 0, in_progress: int = 0) -> CheckpointsStatus:
    last = CheckpointFigures(9, CheckpointKind.CHECKPOINT, "/state/chk-9", 0, 35.4, 1_200_000, 10, 0.5, 1.0)
    failure = "the disk is full" if failed else None
    return CheckpointsStatus(completed, failed, in_progress, last if completed else None, failure)


@pytest.mark.parametrize(
    ("found", "restarts", "text"),
    [
        (None, 0, ""),
        (None, 2, "restarts: 2"),
        (checkpoints(0), 0, "checkpoints: 0"),
        (checkpoints(), 0, "checkpoints: 12 (last 35 ms, 1.2 MB)"),
        (
            checkpoints(12, 2, 1),
            1,
            "checkpoints: 12 (last 35 ms, 1.2 MB), 1 under way, 2 failed (the disk is full); restarts: 1",
        ),
    ],
)
def test_checkpoints_and_restarts_in_a_few_words(found: CheckpointsStatus | None, restarts: int, text: str) -> None:
    assert recovery_text(found, restarts) == text


def test_every_view_tells_of_checkpoints_and_restarts(capsys: pytest.CaptureFixture[str]) -> None:
    words = "checkpoints: 12 (last 35 ms, 1.2 MB); restarts: 1"
    now = replace(status(2, 10_000), checkpoints=checkpoints(), restarts=1)
    assert "checkpoints  12 · last 50 s ago · took 35 ms · 1.2 MB" in rendered(status_table(now, {}, now_ms=50_035))
    lines = ProgressLines()
    failed = replace(now, restarts=2, last_failure="OSError: the disk is full")
    for step in (replace(now, at_ns=0, restarts=0), replace(failed, at_ns=1), replace(failed, at_ns=2)):
        lines.update(step)
    assert capsys.readouterr().err == "2.0 s  restart 2, because OSError: the disk is full\n"
    lines.update(replace(now, at_ns=6_000_000_000))
    assert words in capsys.readouterr().err
    shown = " ".join(rendered(status_table(failed, {})).split())
    assert "restarts 2, the last because OSError: the disk is full" in shown
    result = JobResult("j", "orders", JobState.FINISHED, 2000, (), {}, checkpoints=checkpoints(), restarts=1)
    show_summary(result, frozenset())
    assert words in capsys.readouterr().err


def test_every_view_tells_what_a_job_waits_for(capsys: pytest.CaptureFixture[str]) -> None:
    waiting = replace(status(2, 0), state=JobState.CREATED, waits_for="slots: needs 2 slots, 0 of 2 are free")
    lines = ProgressLines()
    for step in (waiting, replace(waiting, at_ns=1), replace(waiting, at_ns=2, waits_for=None)):
        lines.update(step)
    assert capsys.readouterr().err == "2.0 s  waits for slots: needs 2 slots, 0 of 2 are free\n", "once"
    assert "waits for  slots: needs 2 slots, 0 of 2 are free" in rendered(status_table(waiting, {}))
    job = {
        "job_id": "0123456789", "name": "orders", "state": "created", "restarts": 1, "waits_for": waiting.waits_for,
        "started_ms": 0, "rows_read": 0, "rows_per_s": 0.0, "checkpoints": None, "pid": 7,
    }  # fmt: skip
    assert "created (1 restart, waits for slots)" in jobs_table([job], 1_000)


def narrow(table: object) -> list[str]:
    """The lines of a table on a terminal of 80 columns."""
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(table)
    console.file.close()
    return console.export_text().splitlines()


def test_a_narrow_terminal_shortens_names_and_keeps_the_figures_that_count() -> None:
    now = status(2, 1_500_000, pressure=870)
    source = replace(now.vertices[0], name="Source: orders -> paid.filter -> select.columns -> Sink: something long")
    lines = narrow(status_table(replace(now, vertices=(source,)), {"s": 750_000.0}))
    assert lines[2].split() == ["vertex", "tasks", "rows", "in", "rows/s", "lag", "busy", "pressure"]
    for figure in ("1.5 M", "750.0 k", "5.2 s", "40 %", "87 %"):
        assert figure in lines[4]
    assert max(map(len, lines)) <= 80
    assert lines[4].startswith("Source: orders -> paid.filte…")


def test_data_of_the_past_shows_its_event_time() -> None:
    now = status(2, 10)
    source = replace(now.vertices[0], watermark=1_709_287_205_000, watermark_lag_ms=59_688_000_000)
    lines = narrow(status_table(replace(now, vertices=(source,)), {}))
    assert "2024-03-01" in lines[4]
    assert "10:00:05" in lines[5]
    assert any(line == "watermark  2024-03-01 10:00:05 UTC in the slowest vertex" for line in lines)


@pytest.mark.parametrize(("watermark", "text"), [(-(10**17), "1-01-01 00:00:00"), (10**17, "9999-12-31 23:59:59")])
def test_a_watermark_beyond_the_calendar_is_at_its_end(watermark: int, text: str) -> None:
    now = status(2, 10)
    source = replace(now.vertices[0], watermark=watermark, watermark_lag_ms=10**17)
    lines = narrow(status_table(replace(now, vertices=(source,)), {}))
    assert any(line.startswith(f"watermark  {text} UTC") for line in lines)


def test_the_view_says_that_the_job_is_stopping() -> None:
    assert narrow(status_table(status(2, 10), {}, stopping=True))[0].startswith("orders  stopping… press Ctrl-C again")
    ended = replace(status(2, 10), state=JobState.CANCELED)
    assert narrow(status_table(ended, {}, stopping=True))[0].startswith("orders  cancelled  2.0 s")


def test_one_row_is_one_row(capsys: pytest.CaptureFixture[str]) -> None:
    counted = {"per_minute": {"numLateRecordsDropped": 1}}
    result = JobResult("j", "orders", JobState.CANCELED, 2000, status(2, 1).vertices, counted)
    show_summary(result, frozenset({"s"}))
    said = capsys.readouterr().err
    assert "orders: cancelled in 2.0 s, 1 row read" in said
    assert "per_minute: 1 late row dropped" in said


@pytest.mark.parametrize(("term", "kind"), [("xterm", LiveView), ("dumb", ProgressLines)])
def test_a_terminal_that_cannot_draw_gets_plain_lines(term: str, kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with view_of(ViewOptions(quiet=False, log=LogOptions(), live=None, report=None)) as view:
        assert isinstance(view, kind)
