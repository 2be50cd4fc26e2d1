"""Event time over the splits of one source subtask: the minimum over those that are active."""

from __future__ import annotations

import heapq
from collections.abc import Mapping

from flowrun.core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from flowrun.core.record import record

SPLIT = "split"
"""Family of gauges of what holds back, or has been left out of, a source's watermark: see `PerSplitWatermarks.gauges`."""
CURRENT_WATERMARK = "watermark.currentWatermark"
IS_IDLE = "watermark.isIdle"
LAST_RECORD_TIME = "watermark.lastRecordTime"
MOST_SHOWN = 16


@record
class SplitEventTime:
    """How far a split allows event time to come, ms, and whether it is idle."""

    watermark: int
    idle: bool = False


@record(frozen=False)
class _SplitProgress:
    watermark: int
    touched_ms: int
    idle: bool = False
    quiet: bool = False


class PerSplitWatermarks:
    """What each split allows, and what all of them together allow.

    A split counts from its first row or watermark, or from when it is expected, until it is finished or idle. Idle ones come back with
    their next row. The
    combined watermark never goes back; while no split is active the last value stands. After the splits' outputs in Apache
    Flink's `ProgressiveTimestampsAndWatermarks` and `IndexedCombinedWatermarkStatus`.

    Args:
        combined: where event time begins, ms.
        held_back_ms: how much more a split allows while it is quiet: what its watermark is held back between rows.

    >>> splits = PerSplitWatermarks()
    >>> splits.touch("a", 0); splits.touch("b", 0)
    >>> splits.advance("a", 10); splits.advance("b", 4)
    >>> splits.combine(), splits.combined
    (True, 4)
    >>> splits.finish("b"); splits.combine(), splits.combined
    (True, 10)
    """

    def __init__(self, combined: int = MIN_TIMESTAMP, held_back_ms: int = 0) -> None:
        self._splits: dict[str, _SplitProgress] = {}
        self._held_back_ms = held_back_ms
        self.combined = combined

    def __len__(self) -> int:
        return len(self._splits)

    @property
    def names(self) -> tuple[str, ...]:
        """Splits that sent something and are not finished."""
        return tuple(self._splits)

    @property
    def all_idle(self) -> bool:
        """Whether there are splits, and all of them are idle."""
        return bool(self._splits) and all(s.idle for s in self._splits.values())

    def touch(self, split_id: str, now_ms: int) -> None:
        """The split sent something at this processing time: it is active."""
        split = self._splits.get(split_id)
        if split is None:
            self._splits[split_id] = _SplitProgress(MIN_TIMESTAMP, now_ms)
        else:
            split.touched_ms = now_ms
            split.idle = split.quiet = False

    def expect(self, split_id: str, now_ms: int) -> None:
        """The split has sent nothing yet, and counts all the same."""
        if split_id not in self._splits:
            self._splits[split_id] = _SplitProgress(MIN_TIMESTAMP, now_ms)

    def watermark(self, split_id: str) -> int:
        """What a touched split allows by itself between rows, ms."""
        return self._splits[split_id].watermark

    def ceiling(self, split_id: str) -> int:
        """What the other active splits allow, ms; MAX_TIMESTAMP if there are none."""
        return min(
            (self._allowed(s) for name, s in self._splits.items() if name != split_id and not s.idle),
            default=MAX_TIMESTAMP,
        )

    def _allowed(self, split: _SplitProgress) -> int:
        held_back = split.quiet and split.watermark != MIN_TIMESTAMP
        return split.watermark + (self._held_back_ms if held_back else 0)

    def advance(self, split_id: str, watermark: int) -> None:
        """Raise what a touched split allows."""
        split = self._splits[split_id]
        split.watermark = max(split.watermark, watermark)

    def advance_all(self, watermark: int) -> bool:
        """Raise what all splits allow together, whatever they have sent; whether that advanced."""
        for split in self._splits.values():
            split.watermark = max(split.watermark, watermark)
        if watermark <= self.combined:
            return False
        self.combined = watermark
        return True

    def mark_idle(self, split_id: str, now_ms: int) -> None:
        """Do not wait for this split until its next row, even if it has sent nothing yet."""
        self.touch(split_id, now_ms)
        self._splits[split_id].idle = True

    def mark_quiet(self, split_id: str) -> None:
        """Nothing more is at hand of this split, if it has sent anything: until its next row nothing is held back of its watermark."""
        if split_id in self._splits:
            self._splits[split_id].quiet = True

    def quiet_since(self, deadline_ms: int) -> int | None:
        """Mark splits quiet that sent nothing after `deadline_ms`; the oldest touch of the others, None if there are no others."""
        for split in self._splits.values():
            if split.touched_ms <= deadline_ms:
                split.quiet = True
        return min((s.touched_ms for s in self._splits.values() if not s.quiet), default=None)

    def idle_since(self, deadline_ms: int) -> int | None:
        """Mark splits idle that sent nothing after `deadline_ms`; the oldest touch of the others, None if there are no others."""
        for split in self._splits.values():
            if split.touched_ms <= deadline_ms:
                split.idle = True
        return min((s.touched_ms for s in self._splits.values() if not s.idle), default=None)

    def gauges(self) -> Mapping[str, int | None]:
        """Of each split its watermark (ms; None: none yet), whether it is idle (1, 0), and the processing time of its last row, ms.

        Names are `<split>.<name>`. Of many splits those that hold the watermark back most: active ones before idle ones, and the
        lowest of each. May be called by any thread.
        """
        splits = list(self._splits.items())
        shown = heapq.nsmallest(MOST_SHOWN, splits, key=lambda s: (s[1].idle, s[1].watermark, s[1].touched_ms))
        found: dict[str, int | None] = {}
        for name, split in shown:
            found[f"{name}.{CURRENT_WATERMARK}"] = None if split.watermark == MIN_TIMESTAMP else split.watermark
            found[f"{name}.{IS_IDLE}"] = int(split.idle)
            found[f"{name}.{LAST_RECORD_TIME}"] = split.touched_ms
        return found

    def count(self, *, idle: bool = False) -> int:
        """How many splits count, or how many of them are idle. May be called by any thread."""
        splits = list(self._splits.values())
        return sum(split.idle for split in splits) if idle else len(splits)

    def finish(self, split_id: str) -> None:
        """The split is read to its end."""
        self._splits.pop(split_id, None)

    def combine(self) -> bool:
        """Bring `combined` up to date; whether it advanced."""
        lowest = min((self._allowed(s) for s in self._splits.values() if not s.idle), default=MIN_TIMESTAMP)
        if lowest <= self.combined:
            return False
        self.combined = lowest
        return True

    def progress_of(self, split_id: str) -> SplitEventTime | None:
        """What to restore of a split; None if it has sent nothing yet."""
        split = self._splits.get(split_id)
        return None if split is None else SplitEventTime(split.watermark, split.idle)

    def restore(self, split_id: str, progress: SplitEventTime, now_ms: int) -> None:
        """Count a split as before the snapshot: its next rows hold event time back like those that it sent then."""
        self._splits[split_id] = _SplitProgress(progress.watermark, now_ms, progress.idle)
