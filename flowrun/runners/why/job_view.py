"""A job's details, ready to be asked: operators by id, their counts over all subtasks, what is before and behind them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property

from flowrun.core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from flowrun.core.record import record
from flowrun.operators.event_time_output import NUM_SPLITS
from flowrun.operators.next_firing import NEXT_EVENT_TIME_FIRING, NEXT_PROCESSING_TIME_FIRING
from flowrun.operators.split_watermarks import CURRENT_WATERMARK, IS_IDLE, LAST_RECORD_TIME, SPLIT
from flowrun.runners.why.finding import Thresholds
from flowrun.runtime.job_details import (
    ExchangeDescription,
    JobDetails,
    OperatorDescription,
    SubtaskDetails,
    VertexDetails,
)
from flowrun.runtime.jobmaster.operator_facts import UNNAMED
from flowrun.runtime.lifecycle import ExecutionState

Gauges = Mapping[str, float | int | None]
_NAMES = re.compile(r"'[^']*'|[\w$]*\$[\w$]*")
"""Names that flowrun gave to columns; literals are passed over."""
_LONGEST_EXPRESSION = 80


@record
class SplitView:
    """One split of a source.

    Attributes:
        name: its id.
        subtask: that reads it.
        watermark: of the split, ms; None: it has sent nothing.
        is_idle: whether event time does not wait for it.
        last_ms: processing time of its last row, or since when it is waited for.
    """

    name: str
    subtask: int
    watermark: int | None
    is_idle: bool
    last_ms: int


@record(eq=False, slots=False)
class OperatorView:
    """One operator with what all its subtasks have counted.

    Attributes:
        description: of it.
        vertex: that it is in.
        position: in the vertex's chain, from 0.
        order: in the job, from the sources on.
        keys: names of its key columns an input, by expressions where the user gave no name.
    """

    description: OperatorDescription
    vertex: VertexDetails
    position: int
    order: int
    keys: tuple[tuple[str, ...], ...] = ()

    @property
    def operator_id(self) -> str:
        """Its id."""
        return self.description.operator_id

    @property
    def vertex_id(self) -> str:
        """Of its vertex."""
        return self.vertex.status.vertex_id

    @property
    def name(self) -> str:
        """For people, without what the kind says anyway: `orders` of `Source: orders`."""
        return self.description.name.removeprefix("Source: ").removeprefix("Sink: ").removesuffix(" (local)")

    @property
    def is_local(self) -> bool:
        """Whether it aggregates before the exchange, for the operator of the same name behind it."""
        return self.description.kind.startswith("Local")

    def fact(self, name: str) -> bool | int | float | str | None:
        """One of its settings; None: it has none of that name, or it is off."""
        return self.description.facts.get(name)

    @cached_property
    def counters(self) -> Mapping[str, int]:
        """Sums over its subtasks."""
        total: Counter[str] = Counter()
        for subtask in self.vertex.subtasks:
            for metrics in subtask.operators:
                if metrics.operator_id == self.operator_id:
                    total.update(metrics.counters)
        return total

    def count(self, name: str) -> int:
        """A counter's sum; 0: nobody counts it."""
        return self.counters.get(name, 0)

    def gauges(self) -> Sequence[tuple[SubtaskDetails, Gauges]]:
        """What each subtask measures."""
        return self._gauges

    @cached_property
    def _gauges(self) -> Sequence[tuple[SubtaskDetails, Gauges]]:
        return [
            (subtask, metrics.gauges)
            for subtask in self.vertex.subtasks
            for metrics in subtask.operators
            if metrics.operator_id == self.operator_id
        ]

    @cached_property
    def _of_subtask(self) -> Mapping[int, Gauges]:
        return {subtask.subtask: gauges for subtask, gauges in self._gauges}

    def total(self, name: str) -> int:
        """The sum of a gauge over the subtasks."""
        return int(sum(value for _, gauges in self.gauges() if (value := gauges.get(name)) is not None))

    @property
    def records_in(self) -> int:
        """Rows that came to it; of a source those that it read and sent."""
        return self.records_out if self.description.is_source else self.count("numRecordsIn")

    @property
    def records_out(self) -> int:
        """Rows that it sent, to side outputs as well."""
        return self.count("numRecordsOut") + sum(
            count for name, count in self.counters.items() if name.startswith("numRecordsOut.")
        )

    def input_records(self, number: int) -> int:
        """Rows of one input of the vertex, from 1: those of the operator, if it is the head of its chain."""
        return sum(int(s.gauges.get(f"input.{number}.records") or 0) for s in self.vertex.subtasks)

    @property
    def inputs(self) -> int:
        """How many inputs its vertex has; 0: it reads from outside."""
        return sum(f"input.{number}.records" in self.vertex.subtasks[0].gauges for number in (1, 2, 3))

    def next_firing(self, *, processing_time: bool = False) -> tuple[SubtaskDetails, int] | None:
        """The subtask that waits for the earliest time, and that time, ms; None: nothing waits, or the time has come already."""
        return self._next_processing_time if processing_time else self._next_event_time

    @cached_property
    def _next_event_time(self) -> tuple[SubtaskDetails, int] | None:
        return self._next(NEXT_EVENT_TIME_FIRING)

    @cached_property
    def _next_processing_time(self) -> tuple[SubtaskDetails, int] | None:
        return self._next(NEXT_PROCESSING_TIME_FIRING)

    def _next(self, name: str) -> tuple[SubtaskDetails, int] | None:
        due = [(int(value), s.subtask, s) for s, gauges in self.gauges() if (value := gauges.get(name)) is not None]
        due = [d for d in due if MIN_TIMESTAMP < d[0] < MAX_TIMESTAMP]
        if not due:
            return None
        first, _, subtask = min(due, key=lambda d: d[:2])
        return subtask, first

    def watermark(self, subtask: SubtaskDetails) -> int | None:
        """Event time at this operator in one subtask, ms; None: it has none yet."""
        return subtask.watermark if self.position == 0 and self.inputs else self.sent_watermark(subtask)

    def sent_watermark(self, subtask: SubtaskDetails) -> int | None:
        """The last watermark that it has sent in one subtask, ms; None: none yet, or event time is over."""
        found = self._of_subtask.get(subtask.subtask, {}).get("currentOutputWatermark")
        return None if found is None or found <= MIN_TIMESTAMP or found >= MAX_TIMESTAMP else int(found)

    def splits(self) -> list[SplitView]:
        """The splits that a source's subtasks show."""
        found = []
        for subtask, gauges in self.gauges():
            for name, value in gauges.items():
                if not (name.startswith(f"{SPLIT}.") and name.endswith(f".{CURRENT_WATERMARK}")):
                    continue
                begin = name.removesuffix(CURRENT_WATERMARK)
                found.append(
                    SplitView(
                        begin.removeprefix(f"{SPLIT}.").removesuffix("."),
                        subtask.subtask,
                        None if value is None else int(value),
                        bool(gauges.get(begin + IS_IDLE)),
                        int(gauges.get(begin + LAST_RECORD_TIME) or 0),
                    )
                )
        return found

    def subtasks_without_splits(self) -> list[SubtaskDetails]:
        """Subtasks of a source that have nothing to read, but are not at their end."""
        return [s for s, gauges in self.gauges() if gauges.get(NUM_SPLITS) == 0 and not s.is_at_end]

    def running_ms(self, now_ms: int) -> int | None:
        """For how long all its subtasks run; None: some do not."""
        subtasks = self.vertex.subtasks
        if any(s.state is not ExecutionState.RUNNING for s in subtasks):
            return None
        return now_ms - max(s.since_ms for s in subtasks)


class JobView:
    """The job of some details. Everything is computed when it is asked for.

    Args:
        details: of the job.
        limits: from when on something is worth telling.
    """

    def __init__(self, details: JobDetails, limits: Thresholds) -> None:
        self.details = details
        self.limits = limits
        self.now_ms = details.now_ms
        self.vertices = {v.status.vertex_id: v for v in details.vertices}
        self.operators: list[OperatorView] = []
        self._before: dict[str, frozenset[str]] = {}
        for vertex in details.vertices:
            for position, description in enumerate(vertex.operators):
                keys = tuple(
                    tuple(self.spelled(name, self._vertices_of_input(vertex.status.vertex_id, side)) for name in names)
                    for side, names in enumerate(description.key)
                )
                self.operators.append(OperatorView(description, vertex, position, len(self.operators), keys))

    @property
    def is_over(self) -> bool:
        """Whether the job has ended."""
        return self.details.status.state.is_terminal

    @property
    def has_event_time(self) -> bool:
        """Whether event time goes on while it runs: it is not over, and not in batch mode, where only its end counts."""
        return not self.is_over and not self.details.settings.get("batch_mode")

    @property
    def sources(self) -> list[OperatorView]:
        """Operators that read from outside."""
        return [o for o in self.operators if o.description.is_source]

    @property
    def sinks(self) -> list[OperatorView]:
        """Operators that write to the outside."""
        return [o for o in self.operators if o.description.is_sink]

    def spelled(self, text: str, vertices: Collection[str]) -> str:
        """A text in which columns without a name of the user are called by their expressions.

        Args:
            text: such as `$3` or `EXPR$0 = 'ann'`.
            vertices: whose operators may have computed them; the last one that did counts.
        """
        if "$" not in text:
            return text
        known: dict[str, str] = {}
        for vertex in (v for v in self.details.vertices if v.status.vertex_id in vertices):
            for facts in (o.facts for o in vertex.operators):
                known.update({n.removeprefix(f"{UNNAMED}."): str(e) for n, e in facts.items() if n.startswith(UNNAMED)})

        def expression(match: re.Match[str]) -> str:
            found = known.get(match[0], match[0])
            return found if len(found) <= _LONGEST_EXPRESSION else found[: _LONGEST_EXPRESSION - 1] + "…"

        return _NAMES.sub(expression, text)

    def _vertices_of_input(self, vertex_id: str, side: int) -> frozenset[str]:
        """Vertices that one input comes from, and the vertex itself if it has one only."""
        inputs = self.inputs(vertex_id)
        if len({e.input_index for e in inputs}) < 2:
            return self.before(vertex_id)
        return frozenset().union(*(self.before(e.source) for e in inputs if e.input_index == side))

    def inputs(self, vertex_id: str) -> list[ExchangeDescription]:
        """What a vertex reads."""
        return [e for e in self.details.exchanges if e.target == vertex_id]

    def before(self, vertex_id: str) -> frozenset[str]:
        """Vertices from which rows come to a vertex, itself included."""
        if vertex_id not in self._before:
            self._before[vertex_id] = frozenset(self._all_before(vertex_id))
        return self._before[vertex_id]

    def _all_before(self, vertex_id: str) -> set[str]:
        found, left = {vertex_id}, [vertex_id]
        while left:
            new = {e.source for e in self.inputs(left.pop())} - found
            found |= new
            left += new
        return found

    def sources_before(self, operator: OperatorView) -> list[OperatorView]:
        """The sources whose rows come to an operator."""
        vertices = self.before(operator.vertex_id)
        return [s for s in self.sources if s.vertex_id in vertices]

    def waiting_behind(self, source: OperatorView) -> list[OperatorView]:
        """Operators that rows of a source reach and that let rows wait for event time, from the source on."""
        return [
            o
            for o in self.operators
            if o.order >= source.order and o.next_firing() is not None and source.vertex_id in self.before(o.vertex_id)
        ]

    def final(self, operator: OperatorView) -> OperatorView:
        """The operator for which a local one aggregates; any other one itself."""
        if not operator.is_local:
            return operator
        return next((o for o in self.operators if o.name == operator.name and not o.is_local), operator)

    def rows_before(self, operator: OperatorView) -> int:
        """Rows that came to an operator; where they were aggregated before the exchange, those that came there."""
        if operator.position != 0:
            return operator.records_in
        writers = {e.operator_id for e in self.inputs(operator.vertex_id)}
        local = sum(o.records_in for o in self.operators if o.operator_id in writers and o.is_local)
        return max(operator.records_in, local)
