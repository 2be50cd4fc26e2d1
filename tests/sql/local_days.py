"""What windows by the clocks of a time zone hold, row by row, by Python's `zoneinfo`."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

EPOCH = datetime(1970, 1, 1)
MS = timedelta(milliseconds=1)
ZONES = ("Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "UTC")
CHANGES = {
    "Europe/Berlin": ("2024-03-31T01:00", "2024-10-27T01:00"),
    "America/New_York": ("2024-03-10T07:00", "2024-11-03T06:00"),
    "Asia/Kolkata": ("2024-03-31T18:30", "2024-10-27T18:30"),
    "Australia/Lord_Howe": ("2024-10-05T15:30", "2024-04-06T15:00"),
    "UTC": ("2024-03-31T00:00", "2024-10-27T00:00"),
}
"""Zone → instants around which clocks are set forward and back; where they are not, midnights."""


@dataclass(frozen=True)
class Event:
    """A row: a key and an instant, ms since 1970."""

    id: int
    k: str
    ms: int

    @property
    def csv(self) -> str:
        return f"{self.id},{self.k},{self.ms}"


def events(zone: str, seed: int, count: int = 120) -> list[Event]:
    """Rows within two days of both changes, in order; many on boundaries: whole half hours, and 1 ms before."""
    chance = random.Random(f"{zone} {seed}")
    times: list[int] = []
    for change in CHANGES[zone]:
        middle = round(datetime.fromisoformat(change).replace(tzinfo=UTC).timestamp() * 1000)
        near = [middle + chance.randrange(-8, 8) * 1_800_000 - chance.randrange(2) for _ in range(count // 3)]
        far = [middle + chance.randrange(-2 * 86_400_000, 2 * 86_400_000) for _ in range(count // 6)]
        times += [*near, *far]
    return [Event(i, chance.choice("ab"), t) for i, t in enumerate(sorted(times))]


def local(ms: int, zone: str) -> int:
    """What clocks show at an instant, ms since 1970."""
    shown = (EPOCH + ms * MS).replace(tzinfo=UTC).astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    return (shown - EPOCH) // MS


def last_instant(shown: int, zone: str) -> int:
    """The last instant at which clocks show a local time or an earlier one, found by trying."""
    low, high = shown - 26 * 3_600_000, shown + 26 * 3_600_000
    # clocks go back by an hour at most here: beyond `high` everything is later, and within it the last half hour decides
    candidates = [t for t in range(low - low % 1_800_000, high, 1_800_000) if local(t, zone) <= shown]
    start = max(candidates)
    step = min(shown - local(start, zone), 1_799_999)
    return start + step


def tumbling(size: int, offset: int = 0) -> Windows:
    return Windows(size, size, offset)


@dataclass(frozen=True)
class Windows:
    """Aligned windows of local time: of `size`, one every `slide`, or (`step`) growing by it."""

    size: int
    slide: int
    offset: int = 0
    step: int | None = None

    def of(self, shown: int) -> Iterator[tuple[int, int]]:
        """Bounds of the windows that a local time is in."""
        if self.step is not None:
            start = shown - (shown - self.offset) % self.size
            first = start + (shown - start) // self.step * self.step + self.step
            for end in range(first, start + self.size + 1, self.step):
                yield start, end
            return
        start = shown - (shown - self.offset) % self.slide
        while start + self.size > shown:
            yield start, start + self.size
            start -= self.slide


def aligned(rows: Iterable[Event], zone: str, windows: Windows) -> list[dict[str, object]]:
    """One result a key and window."""
    found: defaultdict[tuple[str, int, int], list[Event]] = defaultdict(list)
    for row in rows:
        for start, end in windows.of(local(row.ms, zone)):
            found[row.k, start, end].append(row)
    return [result(k, start, end, members, zone) for (k, start, end), members in found.items()]


def sessions(rows: Iterable[Event], zone: str, gap: int) -> list[dict[str, object]]:
    """One result a key and session of local times."""
    results = []
    for k in "ab":
        mine = sorted((local(r.ms, zone), r.id, r) for r in rows if r.k == k)
        groups: list[list[tuple[int, int, Event]]] = []
        for one in mine:
            if groups and one[0] - groups[-1][-1][0] <= gap:
                groups[-1].append(one)
            else:
                groups.append([one])
        results += [result(k, g[0][0], g[-1][0] + gap, [r for *_, r in g], zone) for g in groups]
    return results


def result(k: str, start: int, end: int, members: list[Event], zone: str) -> dict[str, object]:
    """A row as it is written: bounds are local times, the time is the last instant."""
    return {
        "k": k, "s": shown(start), "e": shown(end), "n": len(members), "ids": sum(r.id for r in members),
        "t": shown(last_instant(end - 1, zone)) + "Z",
    }  # fmt: skip


def shown(ms: int) -> str:
    """A time as JSON files have it."""
    text = (EPOCH + ms * MS).isoformat(sep=" ", timespec="milliseconds")
    return text.rstrip("0").rstrip(".") if "." in text else text
