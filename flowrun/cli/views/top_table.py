"""The table of `flowrun top`: jobs, one a line, in an order that the user chooses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from rich import box
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from flowrun.cli.views.figures import SHORT_ID, count_text, counted_text, short_duration_text, spelled_state
from flowrun.cli.views.job_look import SILENT, JobLook
from flowrun.core.printable import printable
from flowrun.core.record import record
from flowrun.core.units import size_text

_LEAST_NAME = 16
_ROOMY = 110
"""Columns of a terminal from which on two spaces stand between columns."""


@record
class Sorting:
    """In which order jobs are shown.

    Attributes:
        column: by the figures of which column.
        ascending: the lowest first.
    """

    column: str = "rows/s"
    ascending: bool = False


@record(eq=False)
class Column:
    """A column that jobs can be sorted by.

    Attributes:
        heading: over it.
        value: of a job; None comes last.
        cell: as it is shown.
        width: the least.
        goes: the order in which columns go where the terminal is narrow; 0: it stays.
        is_text: it stands at the left.
    """

    heading: str
    value: Callable[[JobLook], float | str | None]
    cell: Callable[[JobLook], Text]
    width: int
    goes: int = 0
    is_text: bool = False


def _figure(value: float | None, text: Callable[[float], str], style: str = "") -> Text:
    return Text("-", "dim") if value is None else Text(text(value), style)


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"


def _level(value: float | None, warn: float, bad: float | None = None) -> str:
    if value is None:
        return ""
    return "red" if bad is not None and value > bad else "yellow" if value > warn else ""


def _state(job: JobLook) -> Text:
    style = {"running": "green", "failing": "red", "failed": "red"}.get(job.state, "yellow")
    return Text("no answer" if job.state == SILENT else spelled_state(job.state), style)


def _checkpoint(job: JobLook) -> Text:
    return _figure(job.checkpoint_age_ms, short_duration_text, "red" if job.failed_checkpoints else "")


COLUMNS: tuple[Column, ...] = (
    Column("id", lambda j: j.job_id, lambda j: Text(j.job_id[:SHORT_ID], "dim"), 8, goes=2, is_text=True),
    Column("name", lambda j: j.name, lambda j: Text(printable(j.name), "bold"), _LEAST_NAME, is_text=True),
    Column("state", lambda j: j.state, _state, 10, is_text=True),
    Column("rows/s", lambda j: j.rows_per_s, lambda j: _figure(j.rows_per_s, count_text), 8),
    Column("lag", lambda j: j.lag_ms, lambda j: _figure(j.lag_ms, short_duration_text), 6),
    Column("busy", lambda j: j.busy, lambda j: _figure(j.busy, _percent, _level(j.busy, 0.9)), 5),
    Column("busiest vertex", lambda j: j.busiest, lambda j: Text(printable(j.busiest or "-"), "dim"), 20, goes=1, is_text=True),
    Column("press.", lambda j: j.pressure, lambda j: _figure(j.pressure, _percent, _level(j.pressure, 0.1, 0.5)), 7),
    Column("late", lambda j: j.late_rows, lambda j: _figure(j.late_rows, count_text, _level(j.late_rows, 0)), 5, goes=3),
    Column("size", lambda j: j.state_bytes, lambda j: _figure(j.state_bytes, lambda b: size_text(int(b))), 7, goes=4),
    Column("chkpt", lambda j: j.checkpoint_age_ms, _checkpoint, 6),
    Column("rst", lambda j: j.restarts, lambda j: _figure(j.restarts, count_text, _level(j.restarts, 0)), 3),
)  # fmt: skip
"""`busy` is of the busiest vertex, `press.` the share of time in which some subtask waits for those behind it, `size` that of the state
in the last checkpoint, `chkpt` the age of that, and `rst` how many restarts there were.
"""


def sorted_jobs(jobs: Sequence[JobLook], sorting: Sorting) -> list[JobLook]:
    """The jobs in that order; those that have no such figure come last."""
    value = next(c.value for c in COLUMNS if c.heading == sorting.column)
    known = sorted((j for j in jobs if value(j) is not None), key=value, reverse=not sorting.ascending)  # type: ignore[arg-type]
    return [*known, *(j for j in jobs if value(j) is None)]


def top_table(jobs: Sequence[JobLook], sorting: Sorting, *, width: int) -> Table:
    """The jobs in order, with the columns for which there is room."""
    gap = 1 if width < _ROOMY else 2
    columns = _fitting(width, gap, all_ids=len({job.name for job in jobs}) < len(jobs))
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, gap - 1, 0, 0), pad_edge=False)
    names = max((cell_len(job.name) for job in jobs), default=0)
    spare = width - sum(column.width + gap for column in columns) + gap
    more = {"name": min(max(names - _LEAST_NAME, 0), spare)}
    more["busiest vertex"] = spare - more["name"]
    for column in columns:
        chosen = column.heading == sorting.column
        heading = Text(f"{column.heading}{'▲' if sorting.ascending else '▼'}" if chosen else column.heading)
        table.add_column(
            heading,
            justify="left" if column.is_text else "right",
            no_wrap=True,
            overflow="ellipsis",
            min_width=column.width,
            max_width=column.width + more.get(column.heading, 0),
            header_style="bold" if chosen else "dim",
        )
    for job in sorted_jobs(jobs, sorting):
        table.add_row(*(column.cell(job) for column in columns), style="dim" if job.state == SILENT else "")
    return table


def _fitting(width: int, gap: int, *, all_ids: bool) -> list[Column]:
    """The columns for which there is room; `all_ids`: names do not tell the jobs apart."""
    found = list(COLUMNS)
    while sum(c.width + gap for c in found) - gap > width:
        going = min(
            (c for c in found if c.goes and not (all_ids and c.heading == "id")), key=lambda c: c.goes, default=None
        )
        if going is None:
            break
        found.remove(going)
    return found


def top_screen(
    jobs: Sequence[JobLook],
    sorting: Sorting,
    *,
    where: str,
    now_ms: int,
    width: int,
    height: int,
    failure: str | None = None,
) -> RenderableType:
    """All that `flowrun top` shows on a terminal.

    Args:
        jobs: as they were looked at.
        sorting: their order.
        where: they are.
        now_ms: epoch ms.
        width: of the terminal.
        height: of it; jobs that do not fit are counted.
        failure: why the jobs shown are those of the look before; None: they are not.
    """
    room = max(height - 7, 1)
    shown = sorted_jobs(jobs, sorting)[:room]
    parts: list[RenderableType] = [_head(jobs, where, now_ms), Text()]
    parts.append(top_table(shown, sorting, width=width) if jobs else Text(f"no job runs {where}", "dim"))
    if len(jobs) > len(shown):
        parts.append(Text(f"and {counted_text(len(jobs) - len(shown), 'job')} more", "dim"))
    if failure is not None:
        parts.append(Text(printable(failure), "red", no_wrap=True, overflow="ellipsis"))
    return Group(*parts, Text(), _keys(sorting))


def _head(jobs: Sequence[JobLook], where: str, now_ms: int) -> Text:
    states: dict[str, int] = {}
    for job in jobs:
        states[job.state] = states.get(job.state, 0) + 1
    told = ", ".join(f"{count} {spelled_state(state)}" for state, count in sorted(states.items(), key=lambda s: -s[1]))
    head = Text(no_wrap=True, overflow="ellipsis")
    head.append("flowrun", "bold").append(f"  {datetime.fromtimestamp(now_ms / 1000, UTC):%H:%M:%S}Z  {where}  ")
    head.append(counted_text(len(jobs), "job") + (f": {told}" if told else ""))
    rates = [job.rows_per_s for job in jobs if job.rows_per_s is not None]
    if rates:
        head.append(f"  {count_text(sum(rates))} rows/s")
    return head


def _keys(sorting: Sorting) -> Text:
    keys = Text(no_wrap=True, overflow="ellipsis", style="dim")
    for key, meaning in (
        ("s", f"sort: {sorting.column}"),
        ("r", "reverse"),
        ("n", "by name"),
        ("space", "now"),
        ("q", "quit"),
    ):
        keys.append(key, "bold").append(f" {meaning}   ")
    return keys


def next_sorting(sorting: Sorting, key: str) -> Sorting:
    """The order after a key: `s` the next column, `S` the one before, `r` the other way round, `n` by name.

    >>> next_sorting(Sorting("rows/s"), "s"), next_sorting(Sorting("lag"), "r").ascending
    (Sorting(column='lag', ascending=False), True)
    """
    if key == "r":
        return Sorting(sorting.column, not sorting.ascending)
    if key == "n":
        return Sorting("name", ascending=True)
    if key not in ("s", "S"):
        return sorting
    headings = [column.heading for column in COLUMNS]
    place = (headings.index(sorting.column) + (1 if key == "s" else -1)) % len(headings)
    return Sorting(headings[place], COLUMNS[place].is_text)
