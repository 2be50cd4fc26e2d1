"""What a rule of `flowrun lint` is: a name, an explanation, and a function over the compiled plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property

from flowrun.api.source import Boundedness
from flowrun.connectors.filesystem.table_path import allowing_missing
from flowrun.core.record import record
from flowrun.errors import Location
from flowrun.lowering.sources import source_of
from flowrun.plan.nodes import Plan, PlanNode, Scan, walk_plan
from flowrun.runners.compile import CompiledPipeline


@record(slots=False, eq=False)
class Subject:
    """A pipeline that rules look at; it has no errors."""

    compiled: CompiledPipeline

    @property
    def written(self) -> Plan:
        """Its plan before the rewrites."""
        return self.compiled.plan

    @property
    def optimised(self) -> Plan:
        """Its plan as it runs."""
        return self.compiled.optimised

    @cached_property
    def endless(self) -> frozenset[int]:
        """The `id` of each node of both plans whose rows come without end."""
        found: set[int] = set()
        with allowing_missing():
            for plan in (self.written, self.optimised):
                for node in walk_plan(plan):  # inputs come first
                    if isinstance(node, Scan):
                        is_endless = source_of(node).boundedness is Boundedness.UNBOUNDED
                    else:
                        is_endless = any(id(i) in found for i in node.inputs)
                    if is_endless:
                        found.add(id(node))
        return frozenset(found)


@record
class LintFinding:
    """What a rule found.

    Attributes:
        rule: its name.
        message: what is so, in one line.
        remedy: what to do.
        location: of what it is about; None: of the whole pipeline.
    """

    rule: str
    message: str
    remedy: str
    location: Location | None


@record
class LintRule:
    """One rule.

    Attributes:
        name: as `--select`, `--ignore` and comments name it.
        summary: what it finds, in one line.
        explanation: why that matters, what it does not find, and what to do; sentences.
        find: (pipeline) → for each finding (message, remedy, place).
    """

    name: str
    summary: str
    explanation: str
    find: Callable[[Subject], Iterable[tuple[str, str, Location | None]]]


def step_name(node: PlanNode) -> str:
    """How a message calls a node: by the name of its step or table."""
    return f"'{node.hints.name}'" if node.hints.name else type(node).__name__
