"""What nodes become on Spark, and what they read of one another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from flowrun.core.record import record
from flowrun.core.row_errors import OnError
from flowrun.plan.nodes import PlanNode, Scan
from flowrun.plan.row_errors import decoding_of, on_error_of, rows_may_fail
from flowrun.spark.context import Context
from flowrun.spark.frame import EVENT_TIME, SparkFrame, quoted


@record(eq=False, slots=False)
class Translated:
    """What a node became.

    Attributes:
        main: its rows.
        sides: rows of its side outputs, by tag; a tag that is not in it has none (nothing is late in a batch).
        hosted: why it runs the streaming operators; None: it is native.
    """

    main: SparkFrame
    sides: Mapping[str, SparkFrame] = field(default_factory=dict)
    hosted: str | None = None


class Inputs:
    """What a node reads: frames in order, and the nodes behind them for those who must look further."""

    def __init__(self, node: PlanNode, done: Mapping[int, Translated], stop: int | None = None) -> None:
        self._node = node
        self._done = done
        self._stop = stop

    @property
    def frames(self) -> tuple[SparkFrame, ...]:
        """One an input."""
        return tuple(self._cut(self._done[id(i)].main) for i in self._node.inputs)

    @property
    def only(self) -> SparkFrame:
        """That of a node with one input."""
        (frame,) = self.frames
        return frame

    def of(self, node: PlanNode) -> Translated:
        """What any node further up became."""
        return self._done[id(node)]

    def _cut(self, frame: SparkFrame) -> SparkFrame:
        if self._stop is None or not frame.event_time:
            return frame
        return frame.where(f"{quoted(EVENT_TIME)} < {self._stop}")


def leaves_rows_out(node: PlanNode, context: Context) -> str | None:
    """Why a node is hosted whose rows may fail one by one; None: they may not, or the first that fails ends the run."""
    fails = on_error_of(node, context.settings) is OnError.FAIL
    if isinstance(node, Scan):
        puts_aside = decoding_of(node).mode is OnError.DEAD_LETTER
        return None if fails and not puts_aside else "rows that cannot be read are left out"
    return "rows of which it fails are left out" if not fails and rows_may_fail(node) else None
