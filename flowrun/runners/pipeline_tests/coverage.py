"""What tests reach of a pipeline: steps that saw rows, conditions that were both true and not, branches of CASE that were taken.

The plan is looked at as it runs, after the rewrites: filters that follow each other are one. Each test runs once more for it, as it is
written, with probes around conditions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from flowrun.core.record import record
from flowrun.core.types import BOOLEAN
from flowrun.errors import Location
from flowrun.plan.expressions import Case, Expression, Literal, PythonCall, transform
from flowrun.plan.nodes import Plan, PlanNode, Scan, Sink, Split, walk_plan
from flowrun.plan.rewrites.traversal import map_expressions, map_plan
from flowrun.runners.pipeline_tests.binding import BoundTest
from flowrun.runners.pipeline_tests.probes import Probe, new_probe
from flowrun.runners.pipeline_tests.run import run_graph
from flowrun.runners.pipeline_tests.subject import Subject

LONGEST = 60


@record
class Point:
    """Something that tests should reach.

    Attributes:
        line: of the pipeline.
        step: its name.
        text: the condition; empty: the step itself.
        branch: it is a condition of a CASE, which has only to be true once.
        otherwise: it is the ELSE of a CASE, and `text` the last condition, which has to be not true once.
        end: it is a source or a sink, whose rows are counted once.
    """

    line: int
    step: str
    text: str = ""
    branch: bool = False
    otherwise: bool = False
    end: bool = False


@dataclass(slots=True)
class Reached:
    """How often a point was reached: rows that a step got and gave, or how often a condition was true and was not."""

    first: int = 0
    second: int = 0

    def add(self, first: int, second: int) -> None:
        """Add what another run has seen."""
        self.first += first
        self.second += second


@dataclass(slots=True)
class PipelineCoverage:
    """What tests have reached of one pipeline."""

    path: Path
    points: dict[Point, Reached] = field(default_factory=dict)

    @property
    def missing(self) -> list[Point]:
        """What they have not."""
        return [point for point, reached in self.points.items() if not is_covered(point, reached)]


def is_covered(point: Point, reached: Reached) -> bool:
    """Whether tests have seen enough of a point."""
    if not point.text or point.branch or point.otherwise:
        return reached.first > 0
    return reached.first > 0 and reached.second > 0


class Coverage:
    """Runs tests once more, and adds up by pipeline what they reach."""

    def __init__(self) -> None:
        self._by_pipeline: dict[Path, PipelineCoverage] = {}
        self._probed: dict[int, _Probed] = {}

    def add(self, bound: BoundTest) -> None:
        """Run a test."""
        subject = bound.subject
        if id(subject) not in self._probed:
            self._probed[id(subject)] = _Probed(subject)
        path = subject.path.resolve()
        coverage = self._by_pipeline.setdefault(path, PipelineCoverage(subject.path))
        for point, first, second in self._probed[id(subject)].run(bound):
            coverage.points.setdefault(point, Reached()).add(first, second)

    @property
    def pipelines(self) -> list[PipelineCoverage]:
        """By when they came first; their points by line."""
        for coverage in self._by_pipeline.values():
            ordered = sorted(coverage.points.items(), key=lambda item: (item[0].line, item[0].text != ""))
            coverage.points = dict(ordered)
        return list(self._by_pipeline.values())


class _Probed:
    """A pipeline with probes."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._probes: list[tuple[Point, Probe]] = []
        self._steps = {p.step: p for p in _steps(subject.plan)}
        self._graph = subject.graph_of(map_plan(subject.plan, self._with_probes))

    def run(self, bound: BoundTest) -> Iterable[tuple[Point, int, int]]:
        """Each point with what one run of a test has seen of it."""
        for _, probe in self._probes:
            probe.true = probe.other = 0
        outcome = run_graph(bound.test, self._subject, bound.batches, self._graph)
        for name, point in self._steps.items():
            yield point, *_rows(outcome.rows, name)
        for point, probe in self._probes:
            yield (point, probe.other, 0) if point.otherwise else (point, probe.true, probe.other)

    def _with_probes(self, node: PlanNode) -> PlanNode:
        made = map_expressions(node, lambda e: transform(e, lambda inner: self._cases(inner, node)))
        changes: dict[str, Any] = {}
        condition = getattr(made, "condition", None)
        if isinstance(condition, Expression):
            changes["condition"] = self._probe(condition, node)
        if isinstance(made, Split):
            changes["branches"] = tuple((name, self._probe(c, node)) for name, c in made.branches)
        return replace(made, **changes) if changes else made

    def _cases(self, expression: Expression, node: PlanNode) -> Expression:
        if not isinstance(expression, Case):
            return expression
        branches = tuple((self._probe(c, node, branch=True), value) for c, value in expression.branches)
        if node.hints.location is not None and expression.otherwise != Literal(expression.type, None):
            last, probe = self._probes[-1]
            self._probes.append((replace(last, branch=False, otherwise=True), probe))
        return replace(expression, branches=branches)

    def _probe(self, condition: Expression, node: PlanNode, *, branch: bool = False) -> Expression:
        place = node.hints.location
        if place is None:
            return condition
        text = str(condition)
        shown = text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
        probe, reference = new_probe()
        self._probes.append((Point(place.line, node.hints.name or type(node).__name__, shown, branch), probe))
        return PythonCall(BOOLEAN, "probe", reference, (condition,), vectorised=True, deterministic=False)


def _steps(plan: Plan) -> Iterable[Point]:
    """Everything between sources and sinks that has a name and a place, sources and sinks too."""
    for node in walk_plan(plan):
        at: Location | None = node.hints.location
        if at is not None and (node.hints.name or isinstance(node, Sink)):
            yield Point(at.line, node.hints.name or type(node).__name__, end=isinstance(node, Scan | Sink))


def _rows(rows: Mapping[str, tuple[int, int]], name: str) -> tuple[int, int]:
    """Rows that a step got (of a source: gave), and that it gave."""
    for prefix, pick in (("", 0), ("Source: ", 1), ("Sink: ", 0)):
        if (found := rows.get(prefix + name)) is not None:
            return found[pick], found[1]
    # one operator may do several steps: their names are joined by commas
    return next((counts for joined, counts in rows.items() if name in joined.split(", ")), (0, 0))
