"""What the rules of recognition know of the nodes below: traits and kinds of changes, each worked out once."""

from __future__ import annotations

from dataclasses import dataclass, field

from flowrun.api.changelog import ChangelogMode
from flowrun.core.local_time import UTC_ZONE
from flowrun.errors import OptionError
from flowrun.plan.changelog import node_mode
from flowrun.plan.nodes import PlanNode
from flowrun.plan.recognition.problems import RecognitionError
from flowrun.plan.traits import TraitIndex, Traits


@dataclass(slots=True)
class Context:
    """Facts about nodes whose inputs are recognised.

    Attributes:
        batch: the plan is for a batch, which has all rows before it gives any: any order will do.
        time_zone: of the session.
    """

    batch: bool = False
    time_zone: str = UTC_ZONE
    shared: dict[tuple[object, ...], PlanNode] = field(default_factory=dict)
    """Nodes made for several readers of one node, by what they were made from."""
    _traits: TraitIndex = field(default_factory=TraitIndex)
    _modes: dict[int, tuple[PlanNode, ChangelogMode]] = field(default_factory=dict)

    def traits(self, node: PlanNode) -> Traits:
        """Roles of the node's columns."""
        return self._traits[node]

    def appends(self, node: PlanNode) -> bool:
        """Whether the node only inserts rows.

        Raises:
            RecognitionError: a source below cannot be made from its options.
        """
        return self._mode(node) is ChangelogMode.APPEND

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
