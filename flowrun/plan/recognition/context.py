"""What the rules of recognition know of the nodes below: traits and kinds of changes, each worked out once."""

from __future__ import annotations

from dataclasses import dataclass, field

from flowrun.api.changelog import ChangelogMode
from flowrun.api.source import Boundedness
from flowrun.core.local_time import UTC_ZONE
from flowrun.errors import Diagnostic, Location, OptionError
from flowrun.plan.changelog import node_mode
from flowrun.plan.nodes import PlanNode, Scan, WatermarkKind
from flowrun.plan.tables import create_source
from flowrun.plan.traits import TraitIndex, Traits


class RecognitionError(Exception):
    """A node that no operator can do; becomes a `Diagnostic` of the `PipelineError` that names them all."""

    def __init__(self, node: PlanNode, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.location: Location | None = node.hints.location

    def diagnostic(self, text: str) -> Diagnostic:
        """The problem, with the line of the pipeline's text that it points into."""
        line = None
        if self.location is not None:
            lines = text.splitlines()
            line = lines[self.location.line - 1] if 0 < self.location.line <= len(lines) else None
        return Diagnostic(self.message, location=self.location, source_line=line, hint=self.hint)


@dataclass(slots=True)
class Context:
    """Facts about nodes whose inputs are recognised.

    Attributes:
        batch: the plan is for a batch, which has all rows before it gives any: any order will do.
        time_zone: of the session.
        state_ttl_ms: how long the state of a key is kept, 0: for ever.
    """

    batch: bool = False
    time_zone: str = UTC_ZONE
    state_ttl_ms: int = 0
    shared: dict[tuple[object, ...], PlanNode] = field(default_factory=dict)
    """Nodes made for several readers of one node, by what they were made from."""
    _traits: TraitIndex = field(default_factory=TraitIndex)
    _modes: dict[int, tuple[PlanNode, ChangelogMode]] = field(default_factory=dict)
    _bounds: dict[int, tuple[PlanNode, bool]] = field(default_factory=dict)

    def traits(self, node: PlanNode) -> Traits:
        """Roles of the node's columns."""
        return self._traits[node]

    def appends(self, node: PlanNode) -> bool:
        """Whether the node only inserts rows.

        Raises:
            RecognitionError: a source below cannot be made from its options.
        """
        return self._mode(node) is ChangelogMode.APPEND

    def bounded(self, node: PlanNode) -> bool:
        """Whether all that the node reads ends.

        Raises:
            RecognitionError: a source below cannot be made from its options.
        """
        found, stack, seen = True, [node], set[int]()
        while stack and found:
            top = stack.pop()
            if id(top) in seen:
                continue
            seen.add(id(top))
            found = self._bounds.get(id(top), (top, True))[1]
            if isinstance(top, Scan):
                found = self._source_ends(top)
            stack.extend(top.inputs)
        self._bounds[id(node)] = (node, found)
        return found

    def endless_without_watermark(self, node: PlanNode) -> Scan | None:
        """A source that the node reads and that gives neither watermarks nor an end; None if there is none.

        Raises:
            RecognitionError: a source below cannot be made from its options.
        """
        stack, seen = [node], set[int]()
        while stack:
            top = stack.pop()
            if id(top) in seen:
                continue
            seen.add(id(top))
            stack.extend(reversed(top.inputs))
            if isinstance(top, Scan) and _is_silent(top) and not self._source_ends(top):
                return top
        return None

    def _source_ends(self, scan: Scan) -> bool:
        try:
            source = create_source(scan.table, scan.physical, scan.declared, scan.filters)
        except OptionError as error:
            raise RecognitionError(scan, error.message, error.hint or "correct the table's options") from error
        return source.boundedness is Boundedness.BOUNDED

    def _mode(self, node: PlanNode) -> ChangelogMode:
        stack = [node]
        while stack:
            top = stack[-1]
            missing = [i for i in top.inputs if id(i) not in self._modes]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            if id(top) not in self._modes:
                try:
                    mode = node_mode(top, [self._modes[id(i)][1] for i in top.inputs])
                except OptionError as error:
                    raise RecognitionError(top, error.message, error.hint or "correct the table's options") from error
                self._modes[id(top)] = (top, mode)
        return self._modes[id(node)][1]


def _is_silent(scan: Scan) -> bool:
    return scan.watermark is None or scan.watermark.kind is WatermarkKind.NONE
