"""What is found about a job: values, which the command line, the REST API and its page show alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import UTC, datetime
from enum import Enum

from flowrun.core.record import record
from flowrun.core.units import format_duration

Figure = None | bool | int | float | str


class Severity(Enum):
    """What a finding means for the rows, the worst first."""

    BLOCKS = "blocks"
    """Rows that should come out do not."""
    LOSES = "loses"
    """Rows are left out of the results."""
    SLOWS = "slows"
    """Rows come out later than they could."""
    RISKS = "risks"
    """Nothing is wrong yet."""
    INFORMS = "informs"
    """It is as was asked for; it may not be what was meant."""


SEVERITIES = tuple(Severity)


@record
class Finding:
    """One thing that is so, and what can be done about it.

    Attributes:
        kind: what was found, such as `late_rows`; `docs/why.md` lists them.
        severity: what it means for the rows.
        title: one line.
        text: sentences: what is so, and by which figures one sees it.
        vertices: ids of the vertices that it is about.
        operator: id of the operator that it is about; None: of no single one.
        figures: by name, what the text says in numbers; times in epoch ms, durations in ms.
        remedy: what to do; None: nothing has to be done.
    """

    kind: str
    severity: Severity
    title: str
    text: str
    vertices: tuple[str, ...] = ()
    operator: str | None = None
    figures: Mapping[str, Figure] = field(default_factory=dict)
    remedy: str | None = None

    def to_json(self) -> dict[str, object]:
        """As the REST API gives it."""
        return {
            "kind": self.kind,
            "severity": self.severity.value,
            "title": self.title,
            "text": self.text,
            "vertices": list(self.vertices),
            "operator": self.operator,
            "figures": dict(self.figures),
            "remedy": self.remedy,
        }


@record
class Thresholds:
    """From when on something is worth telling.

    Attributes:
        silent_ms: a source or split that sends nothing for so long is silent; before, a job may just have started.
        behind_ms: event time that is so far behind another's is held back.
        back_pressured_ms_per_s: who waits for room downstream for so much of a second is back-pressured.
        busy_ms_per_s: who works for so much of a second is busy.
        saturated_ms_per_s: who works for so much of a second can do no more.
        lagging_records: a source with so many records to be read is behind.
        skewed_rows: of fewer rows nothing is said about how they spread.
        skewed_share: of what one subtask gets beyond its fair share, as a part of what the others should have had.
        heavy_key: part of the rows that makes a key heavy.
        growing_rows: of less state nothing is said about its growth.
        growing_share: rows of state for each row that came, from which on state grows with the input.
    """

    silent_ms: int = 5_000
    behind_ms: int = 5_000
    back_pressured_ms_per_s: float = 500.0
    busy_ms_per_s: float = 700.0
    saturated_ms_per_s: float = 900.0
    lagging_records: int = 1_000
    skewed_rows: int = 1_000
    skewed_share: float = 0.4
    heavy_key: float = 0.2
    growing_rows: int = 10_000
    growing_share: float = 0.5


def time_text(ms: int) -> str:
    """A time in UTC, to the second unless it has parts of one; outside of the years 1 to 9999 the number.

    >>> time_text(1_709_280_000_000), time_text(1_709_280_000_250)
    ('2024-03-01 08:00:00', '2024-03-01 08:00:00.250')
    """
    try:
        time = datetime.fromtimestamp(ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"
    return f"{time:%Y-%m-%d %H:%M:%S}" + (f".{ms % 1000:03d}" if ms % 1000 else "")


def duration_text(ms: float) -> str:
    """A duration in the two greatest units that it has, seconds with a decimal.

    >>> duration_text(250), duration_text(4_210), duration_text(83_000), duration_text(7_260_000), duration_text(200_000_000)
    ('250 ms', '4.2 s', '1 min 23 s', '2 h 1 min', '2 d 7 h')
    """
    if ms < 1_000:
        return f"{ms:.0f} ms"
    if ms < 60_000:
        return f"{ms / 1000:.1f} s"
    for unit, name, part, part_name in (
        (86_400_000, "d", 3_600_000, "h"),
        (3_600_000, "h", 60_000, "min"),
        (60_000, "min", 1_000, "s"),
    ):
        if ms >= unit:
            return f"{ms // unit:.0f} {name} {ms % unit // part:.0f} {part_name}"
    return format_duration(round(ms))


def count_text(count: int, one: str = "row", many: str | None = None) -> str:
    """A number with its noun.

    >>> count_text(1), count_text(12_345), count_text(2, "entry", "entries")
    ('1 row', '12,345 rows', '2 entries')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def share_text(part: float, whole: float) -> str:
    """A part of a whole in percent, with a decimal where it is little.

    >>> share_text(1, 3), share_text(1, 400), share_text(0, 0)
    ('33 %', '0.2 %', '0 %')
    """
    percent = 100 * part / whole if whole else 0.0
    return f"{percent:.1f} %" if 0 < percent < 1 or 99 < percent < 100 else f"{percent:.0f} %"
