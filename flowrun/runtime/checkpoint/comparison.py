"""What a comparison of a pipeline with a savepoint says, as values: per operator what becomes of its state, and what forbids it."""

from __future__ import annotations

from enum import Enum

from flowrun.core.record import record
from flowrun.core.units import size_text
from flowrun.errors import StateError
from flowrun.graph.job_graph import JobGraph


class StateChange(Enum):
    """What becomes of an operator's state when a pipeline restores from a savepoint."""

    KEPT = "kept"
    NEW = "new"
    DROPPED = "dropped"
    CHANGED = "changed"
    INCOMPATIBLE = "incompatible"
    STATELESS = "stateless"


@record
class Problem:
    """Why a pipeline cannot restore from a savepoint.

    Attributes:
        message: names the operator, what the savepoint has and what the pipeline expects.
        hint: what to do about it.
        loses_state: state would be left behind and nothing else: allowed if the user says so.
    """

    message: str
    hint: str | None = None
    loses_state: bool = False


@record
class Layout:
    """How an operator is spread: subtasks, and key groups."""

    parallelism: int
    max_parallelism: int


@record
class TableFacts:
    """A piece of an operator's state. `rows` is None where only reading the files would tell; `size` in bytes, 0 if not in files."""

    name: str
    keyed: bool
    size: int
    rows: int | None


@record
class OperatorComparison:
    """One operator of the pipeline, of the savepoint, or of both.

    Attributes:
        uid: the user's, in the pipeline if the operator is in both; None: found by structure.
        before: in the savepoint; None: not there.
        after: in the pipeline, with the number of key groups that it will have; None: not there.
        keyed: whether it has keyed state: only then does the number of key groups matter.
        tables: its state in the savepoint.
        additions: columns that state tables get, as text; what CHANGED stands for.
        problems: what forbids to go on.
        notes: what the user should know.
    """

    operator_id: str
    name: str
    uid: str | None
    change: StateChange
    before: Layout | None
    after: Layout | None
    keyed: bool = False
    tables: tuple[TableFacts, ...] = ()
    additions: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of its state files."""
        return sum(table.size for table in self.tables)

    @property
    def found_by(self) -> str:
        """How the operator is found in a savepoint."""
        return "no uid" if self.uid is None else f"uid {self.uid}"

    @property
    def layout_text(self) -> str:
        """Parallelism and key groups, before and after: `parallelism 2 -> 3, max parallelism 128`."""
        text = f"parallelism {_change(self.before, self.after, 'parallelism')}"
        return f"{text}, max parallelism {_change(self.before, self.after, 'max_parallelism')}" if self.keyed else text

    @property
    def state_text(self) -> str:
        """What state there is: `partials 1.5 MiB, progress 2 rows`."""
        return ", ".join(
            f"{t.name} {size_text(t.size)}" if t.keyed else f"{t.name} {t.rows} row{'' if t.rows == 1 else 's'}"
            for t in self.tables
        )


def _change(before: Layout | None, after: Layout | None, number: str) -> str:
    values = list(dict.fromkeys(getattr(layout, number) for layout in (before, after) if layout is not None))
    return " -> ".join(str(v) for v in values)


@record
class Comparison:
    """What would happen if a pipeline restored from a savepoint.

    Attributes:
        title: names the savepoint: kind, number and pipeline.
        operators: those of the pipeline in its order, then the dropped ones.
        job_graph: the pipeline's, with the savepoint's number of key groups where the user did not set one: run this one.
        problems: that concern no single operator.
        warnings: what the user should know before going on.
    """

    title: str
    operators: tuple[OperatorComparison, ...]
    job_graph: JobGraph
    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def all_problems(self) -> tuple[Problem, ...]:
        """Of operators and of the whole, in order."""
        return (*(p for operator in self.operators for p in operator.problems), *self.problems)

    def problems_unless(self, allow_non_restored_state: bool) -> tuple[Problem, ...]:
        """What forbids to go on, given whether state may be left behind."""
        return tuple(p for p in self.all_problems if not (p.loses_state and allow_non_restored_state))

    def check(self, allow_non_restored_state: bool) -> None:
        """Nothing, if the pipeline can restore from the savepoint.

        Raises:
            StateError: it cannot; has all problems in one message.
        """
        problems = self.problems_unless(allow_non_restored_state)
        if not problems:
            return
        count = "a problem" if len(problems) == 1 else f"{len(problems)} problems"
        lines = [f"'{self.job_graph.name}' cannot go on from {self.title}: {count}"]
        for problem in problems:
            lines.append(f"- {problem.message}")
            if problem.hint is not None:
                lines.append(f"  hint: {problem.hint}")
        raise StateError("\n  ".join(lines))

    def lines(self, allow_non_restored_state: bool = False) -> list[str]:
        """All of it as plain text: a line an operator with its problems and notes below, then what concerns the whole, then a verdict."""
        width = max((len(o.name) for o in self.operators), default=0)
        found = max((len(o.found_by) for o in self.operators), default=0)
        shown = [self.title]
        for operator in self.operators:
            facts = [operator.layout_text, *([operator.state_text] if operator.tables else [])]
            shown.append(
                f"  {operator.change.value:<12}  {operator.name:<{width}}  {operator.found_by:<{found}}  {'; '.join(facts)}"
            )
            shown += [f"      + {text}" for text in operator.additions]
            shown += [f"      {line}" for p in operator.problems for line in problem_lines(p, allow_non_restored_state)]
            shown += [f"      note: {text}" for text in operator.notes]
        shown += [f"  {line}" for p in self.problems for line in problem_lines(p, allow_non_restored_state)]
        shown += [f"  warning: {text}" for text in self.warnings]
        return [*shown, self.verdict(allow_non_restored_state)]

    def verdict(self, allow_non_restored_state: bool) -> str:
        """One line: can it go on?"""
        problems = len(self.problems_unless(allow_non_restored_state))
        if problems:
            return f"cannot resume: {problems} problem{'' if problems == 1 else 's'}"
        lost = len(self.all_problems)
        return "can resume" + (
            f"; leaves the state of {lost} operator{'' if lost == 1 else 's'} behind" if lost else ""
        )


def problem_lines(problem: Problem, allow_non_restored_state: bool) -> list[str]:
    """A problem and its hint as text; one that the user allowed is a warning without a hint."""
    if problem.loses_state and allow_non_restored_state:
        return [f"warning: {problem.message}"]
    return [f"error: {problem.message}", *([f"  hint: {problem.hint}"] if problem.hint else [])]
