"""The live view and `flowrun top` at several widths, as `goldens/` shows them.

`python -m tests.cli.views.test_screens` writes these anew.
"""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console, RenderableType

from flowrun.cli.job_looks import JobLooks, LookedAt
from flowrun.cli.views.job_look import SILENT, JobLook, job_look
from flowrun.cli.views.live_view import short_chain, status_table
from flowrun.cli.views.top_table import COLUMNS, Sorting, next_sorting, sorted_jobs, top_screen
from flowrun.core.clock import ManualClock
from flowrun.core.elements import CheckpointKind
from flowrun.errors import ClusterError
from flowrun.runners.registry import JobEntry, new_entry
from flowrun.runtime.checkpoint.events import CheckpointFigures, CheckpointsStatus
from flowrun.runtime.job_details import JobDetails
from flowrun.runtime.job_status import JobStatus, VertexStatus
from flowrun.runtime.lifecycle import ExecutionState as E
from flowrun.runtime.lifecycle import JobState
from tests.rest.control_fakes import FakeJob

GOLDENS = Path(__file__).parent / "goldens"
WIDTHS = (60, 80, 120, 200)
LAST = CheckpointFigures(9, CheckpointKind.CHECKPOINT, "/state/chk-9", 0, 35.4, 1_200_000, 10, 0.5, 1.0)
FAILED = CheckpointsStatus(12, 2, 1, LAST, "the disk is full")
VERTICES = (
    VertexStatus(
        "s", "Source: orders -> paid", 2, {E.RUNNING: 2}, records_in=1_500_000, records_out=1_500_000, watermark=1_711_962_000_000,
        watermark_lag_ms=5_200, busy_ms_per_s=400.0, idle_ms_per_s=20.0, max_back_pressured_ms_per_s=870.0,
    ),
    VertexStatus(
        "w", "per_minute -> spent.select -> big.filter -> Calc(user_id, total * 1.07 AS total, CASE WHEN a THEN b END)", 4,
        {E.RUNNING: 3, E.DEPLOYING: 1}, records_in=987_654, records_out=1_234, watermark=1_711_961_922_200, watermark_lag_ms=83_000,
        busy_ms_per_s=977.0, max_back_pressured_ms_per_s=210.0,
    ),
    VertexStatus("k", "Sink: out", 1, {E.FINISHED: 1}, records_in=1_234, records_out=1_234),
)  # fmt: skip
QUIET = JobStatus("j", "orders", JobState.RUNNING, 0, 133_000, VERTICES, CheckpointsStatus(12, 0, 0, LAST))
COUNTED = replace(VERTICES[1], counters={"w": {"numLateRecordsDropped": 1_200, "numRecordsSkipped": 3}})
TROUBLED = replace(
    QUIET, vertices=(VERTICES[0], COUNTED, VERTICES[2]), checkpoints=FAILED, restarts=1,
    last_failure="OSError: the disk is full, and this message is long enough to be folded on a terminal of eighty columns",
)  # fmt: skip
JOBS = (
    JobLook(
        "aaaa1111", "orders", "running", 133_000, 1_500_000, 750_000.4, 5_200, VERTICES[1].name, 0.977, 0.87, 1_200, 1_200_000,
        4_200.0, 2, 1,
    ),
    JobLook("bbbb1111", "payments of all shops in europe", "restarting", 9, 0, 0.0, None, "a", 0.0, 0.0, 0, None, None, 0, 0, "slots"),
    JobLook("cccc1111", "frozen", SILENT),
)  # fmt: skip


def drawn(shown: RenderableType, width: int, **console: bool | str) -> str:
    file = io.StringIO()
    Console(width=width, file=file, **console).print(shown)  # type: ignore[arg-type]
    return "".join(f"{line.rstrip()}\n" for line in file.getvalue().splitlines())


def screens(width: int) -> dict[str, str]:
    rates = {"s": 750_000.0, "w": 321.0}
    top = top_screen(JOBS, Sorting(), where="on this machine", now_ms=1_700_000_000_000, width=width, height=24)
    return {
        f"live_{width}.txt": drawn(status_table(QUIET, rates, now_ms=50_000, width=width), width),
        f"live_troubled_{width}.txt": drawn(status_table(TROUBLED, rates, now_ms=50_000, width=width), width),
        f"top_{width}.txt": drawn(top, width),
    }


@pytest.mark.parametrize("width", WIDTHS)
def test_screens_look_as_they_were_judged_to_look_well(width: int) -> None:
    for name, text in screens(width).items():
        assert text == (GOLDENS / name).read_text(encoding="utf-8"), name
        assert max(map(cell_len, text.splitlines())) <= width, name


def test_the_live_view_keeps_one_line_for_each_vertex() -> None:
    for width in range(40, 200, 7):
        lines = drawn(status_table(TROUBLED, {}, now_ms=0, width=width), width).splitlines()
        table = lines[4 : lines.index("", 4)]
        assert len(table) == len(VERTICES), width


def test_colour_says_what_words_say_too() -> None:
    shown = status_table(TROUBLED, {}, now_ms=0, width=100)
    coloured = drawn(shown, 100, force_terminal=True, color_system="standard")
    plain = drawn(shown, 100, force_terminal=True, no_color=True)
    assert "\x1b[31m    87 %" in coloured, "back pressure in red"
    assert "\x1b[31m" not in plain
    assert "87 %" in plain


@pytest.mark.parametrize("width", range(1, 60, 3))
def test_names_of_chains_fit(width: int) -> None:
    for name in ("Source: orders -> paid.filter -> per_minute", "x" * 100, "数据 -> 数据数据数据 -> b", "a -> b"):
        assert cell_len(short_chain(name, width)) <= max(width, 1)


def test_hostile_names_do_not_reach_the_terminal() -> None:
    hostile = "a\x1b[2J\x07\u202e[red]b"
    look = replace(JOBS[0], name=hostile, busiest=hostile)
    status = replace(
        TROUBLED, name=hostile, vertices=(replace(VERTICES[0], name=hostile),), last_failure=hostile, waits_for=hostile
    )
    top = top_screen([look], Sorting(), where="here", now_ms=0, width=200, height=24, failure=hostile)
    for shown in (top, status_table(status, {}, width=200)):
        text = drawn(shown, 200)
        assert not {"\x1b", "\x07", "\u202e"} & set(text)
        assert "[red]b" in text, "names are no markup"


def test_every_column_sorts_and_what_has_no_figure_comes_last() -> None:
    for column in COLUMNS:
        for ascending in (False, True):
            found = sorted_jobs(JOBS, Sorting(column.heading, ascending))
            assert set(found) == set(JOBS)
            known = [value for job in found if (value := column.value(job)) is not None]
            assert known == sorted(known, reverse=not ascending)  # type: ignore[type-var]
            assert [column.value(job) is None for job in found] == sorted(column.value(job) is None for job in found)


def test_keys_go_through_all_columns_and_back() -> None:
    sorting = Sorting()
    for _ in COLUMNS:
        sorting = next_sorting(sorting, "s")
    assert sorting.column == "rows/s"
    assert next_sorting(next_sorting(sorting, "s"), "S").column == "rows/s"
    assert next_sorting(sorting, "n") == Sorting("name", ascending=True)
    assert next_sorting(sorting, "x") == sorting


def test_jobs_that_do_not_fit_are_counted() -> None:
    many = [replace(JOBS[0], job_id=str(n), name=f"job {n}") for n in range(40)]
    text = drawn(top_screen(many, Sorting(), where="here", now_ms=0, width=80, height=24), 80)
    assert "and 23 jobs more" in text
    assert len(text.splitlines()) <= 24
    assert "no job runs here" in drawn(top_screen([], Sorting(), where="here", now_ms=0, width=80, height=24), 80)


def test_a_look_is_of_the_job_and_rates_are_between_two() -> None:
    details = FakeJob().details()
    first = job_look(details, 3_000, None, "orders")
    assert (first.rows_read, first.rows_per_s, first.restarts, first.checkpoint_age_ms) == (6_000, None, 2, 1_987.5)
    later = replace(details, status=replace(details.status, at_ns=2_000_000_000))
    assert job_look(later, 3_000, (5_000, 1_000_000_000), "orders").rows_per_s == 1_000
    assert job_look(later, 3_000, (9_000, 1_000_000_000), "orders").rows_per_s == 0, "its process began anew"


def entry(name: str) -> JobEntry:
    return new_entry(name * 8, name, f"{name}.yaml", 1, 0)


def test_jobs_that_hang_end_or_come_do_not_hold_up_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    monkeypatch.setattr("flowrun.cli.job_looks._PATIENCE_S", 0.05)
    hangs, listed = threading.Event(), [entry("a"), entry("b"), entry("c")]

    def details(asked: JobEntry) -> JobDetails:
        if asked.name == "b":
            hangs.wait(10)
        if asked.name == "c":
            listed.remove(asked)
            raise ClusterError("it is gone")
        return FakeJob(asked.job_id).details()

    clock = ManualClock(0)
    looks = JobLooks(LookedAt(lambda: list(listed), details, "here"), clock)
    assert [(j.name, j.state) for j in looks.look()] == [("a", "running"), ("b", "asked")]
    clock.advance(5_000)
    assert [(j.name, j.state) for j in looks.look()] == [("a", "running"), ("b", SILENT)]
    hangs.set()
    while [j.state for j in looks.look()] != ["running", "running"]:
        pass
    listed.append(entry("d"))
    del listed[0]
    assert [j.name for j in looks.look()] == ["b", "d"]
    looks.close()


if __name__ == "__main__":
    for width in WIDTHS:
        for name, text in screens(width).items():
            (GOLDENS / name).write_text(text, encoding="utf-8")
