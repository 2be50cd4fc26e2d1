"""Steps of pipelines under test that hold the stream at a chosen row, so that a checkpoint is taken, or a kill comes, just there."""

from __future__ import annotations

import threading

import pyarrow as pa

from tests.recovery.far_gates import is_far, pass_far

PATIENCE_S = 60
"""How long a gate holds before it takes the test for stuck."""
DRIP_S = 0.01
"""How long a batch takes to drip through."""


class Gate:
    """Lets rows pass until it has seen a number of them, then holds whoever comes until it drips or is opened.

    One with a name may be passed in other processes; see `tests.recovery.far_gates`.
    """

    def __init__(self, name: str = "") -> None:
        self._name = name
        self._lock = threading.Lock()
        self._seen = 0
        self._after: int | None = None
        self._dripping = False
        self._fails = False
        self.reached = threading.Event()
        self._moved = threading.Event()

    def fail_once(self) -> None:
        """Have the next rows fail; they are not counted."""
        self._fails = True

    def close_after(self, rows: int | None) -> None:
        """Hold once so many more rows have come; None: never."""
        with self._lock:
            self._after = None if rows is None else self._seen + rows
            self._dripping = False
            self.reached, moved, self._moved = threading.Event(), self._moved, threading.Event()
        moved.set()

    def drip(self) -> None:
        """Let one batch pass at a time, slowly, until it is closed again or opened."""
        with self._lock:
            self._after, self._dripping = None, True
            moved, self._moved = self._moved, threading.Event()
        moved.set()

    def open(self) -> None:
        """Let everything pass from now on."""
        self.close_after(None)

    def passed(self, rows: int) -> None:
        """Rows come by."""
        if self._name and is_far():
            pass_far(self._name, rows)
            return
        with self._lock:
            if self._fails:
                self._fails = False
                raise OSError("the gate broke")
            self._seen += rows
            holds = self._after is not None and self._seen >= self._after
            drips, reached, moved = self._dripping, self.reached, self._moved
        if holds:
            reached.set()
            if not moved.wait(PATIENCE_S):
                raise TimeoutError("nobody opened the gate")
        elif drips:
            moved.wait(DRIP_S)


SOURCE = Gate("source")
RESULTS = Gate("results")
NAMED = {"source": SOURCE, "results": RESULTS}


def source_gate(rows: pa.RecordBatch) -> pa.RecordBatch:
    """A map step behind the source."""
    SOURCE.passed(rows.num_rows)
    return rows


def results_gate(rows: pa.RecordBatch) -> pa.RecordBatch:
    """A map step behind the stateful one."""
    RESULTS.passed(rows.num_rows)
    return rows
