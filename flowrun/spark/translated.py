"""The result of the translation of a node, and the inputs of a node."""

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
    """A translated node.

    Attributes:
        main: the rows of the node.
        sides: the rows of its side outputs by tag; a tag that is missing has no rows (nothing is late in a batch).
        hosted: why the node runs the streaming operators; None: it is native.
    """

    main: SparkFrame
    sides: Mapping[str, SparkFrame] = field(default_factory=dict)
    hosted: str | None = None


class Inputs:
    """The inputs of a node: their frames in order, and the translations of all nodes upstream."""

    def __init__(self, node: PlanNode, done: Mapping[int, Translated], stop: int | None = None) -> None:
        self._node = node
        self._done = done
        self._stop = stop

    @property
    def frames(self) -> tuple[SparkFrame, ...]:
        """The rows of each input."""
        return tuple(self._cut(self._done[id(i)].main) for i in self._node.inputs)

    @property
    def only(self) -> SparkFrame:
        """The rows of the only input."""
        (frame,) = self.frames
        return frame

    def of(self, node: PlanNode) -> Translated:
        """The translation of any node upstream."""
        return self._done[id(node)]

    def _cut(self, frame: SparkFrame) -> SparkFrame:
        if self._stop is None or not frame.event_time:
            return frame
        return frame.where(f"{quoted(EVENT_TIME)} < {self._stop}")


def leaves_rows_out(node: PlanNode, context: Context) -> str | None:
    """Why a node is hosted that leaves out rows which fail; None: no row can fail, or the first one that fails ends the run."""
    fails = on_error_of(node, context.settings) is OnError.FAIL
    if isinstance(node, Scan):
        puts_aside = decoding_of(node, context.settings).mode is OnError.DEAD_LETTER
        return None if fails and not puts_aside else "rows that cannot be read are left out"
    return "rows of which it fails are left out" if not fails and rows_may_fail(node) else None
