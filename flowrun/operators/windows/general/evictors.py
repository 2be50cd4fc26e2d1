"""Evictors: which rows a window drops before or after it fires, for good; those of Apache Flink's DataStream API."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from flowrun.core.record import record


@record
class WindowRows:
    """A window's rows in arrival order: event times (ms; arrival times on a stream without), and the evictor's column, NaN for NULL."""

    times: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64] | None = None


@record
class CountEvictor:
    """Keeps the `count` rows that arrived last."""

    count: int
    after: bool = False

    def __post_init__(self) -> None:
        if self.count <= 0:
            raise ValueError(f"count of an evictor must be positive, not {self.count}")

    @property
    def column(self) -> int | None:
        """None."""
        return None

    def kept(self, rows: WindowRows) -> npt.NDArray[np.bool_]:
        """The last rows.

        >>> CountEvictor(2).kept(WindowRows(np.arange(3))).tolist()
        [False, True, True]
        """
        keep = np.zeros(len(rows.times), np.bool_)
        keep[-self.count :] = True
        return keep


@record
class TimeEvictor:
    """Keeps rows that are less than `time_ms` older than the newest."""

    time_ms: int
    after: bool = False

    def __post_init__(self) -> None:
        if self.time_ms <= 0:
            raise ValueError(f"time of an evictor must be positive, not {self.time_ms} ms")

    @property
    def column(self) -> int | None:
        """None."""
        return None

    def kept(self, rows: WindowRows) -> npt.NDArray[np.bool_]:
        """Rows after newest − time.

        >>> TimeEvictor(5).kept(WindowRows(np.array([5, 10, 6]))).tolist()
        [False, True, True]
        """
        keep: npt.NDArray[np.bool_] = rows.times > rows.times.max() - self.time_ms
        return keep


@record
class DeltaEvictor:
    """Keeps rows whose number in `column` is less than `threshold` away from the last row's; NULLs are kept, as are all if it is NULL."""

    column: int
    threshold: float
    after: bool = False

    def __post_init__(self) -> None:
        if not self.threshold > 0:
            raise ValueError(f"threshold of an evictor must be positive, not {self.threshold}")

    def kept(self, rows: WindowRows) -> npt.NDArray[np.bool_]:
        """Rows near the last one.

        >>> DeltaEvictor(0, 2.0).kept(WindowRows(np.arange(3), np.array([1.0, 4.0, 3.0]))).tolist()
        [False, True, True]
        """
        assert rows.values is not None
        keep: npt.NDArray[np.bool_] = ~(np.abs(rows.values - rows.values[-1]) >= self.threshold)
        return keep


Evictor: TypeAlias = CountEvictor | TimeEvictor | DeltaEvictor
