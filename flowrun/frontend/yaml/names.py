"""Who produces what: the document's names, how steps read each other, cycles, and what nobody reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum

from flowrun.core.record import record
from flowrun.errors import Location, did_you_mean
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.shared_parts import SharedParts
from flowrun.frontend.sql.grammar.tables_named import tables_named
from flowrun.frontend.trees.nodes import YamlScalar
from flowrun.frontend.trees.spec import Named, Section
from flowrun.frontend.yaml.queries.step_queries import SET_PARTS

SECOND_INPUTS = ("connect", "broadcast")
"""Keys of a step that name a second stream for its process function."""


class OutputKind(Enum):
    """What a name stands for."""

    SOURCE = "source"
    STEP = "step"
    BRANCH = "split branch"
    LATE = "late output"
    SIDE = "side output"


@record
class Output:
    """A stream that can be read by name; `owner` is the source or step that produces it."""

    name: str
    kind: OutputKind
    owner: str
    key: YamlScalar


@record
class Reference:
    """A name that a step or sink reads, and where it says so."""

    text: str
    location: Location


class Names:
    """All outputs of a document by name, and the order in which steps can be built.

    Args:
        document: the whole.
        diagnostics: receives problems.
        shared: what its project gives it, whose sources need not be read; None: it is in none.
    """

    def __init__(self, document: Section, diagnostics: Diagnostics, shared: SharedParts | None = None) -> None:
        self._diagnostics = diagnostics
        self._shared = shared
        self._steps = sections(document.named("steps"))
        self._sinks = sections(document.named("sinks"))
        self._references: dict[int, tuple[Reference, ...]] = {}
        self.outputs: dict[str, Output] = {}
        for name, named in document.named("sources").items():
            self._declare(Output(name, OutputKind.SOURCE, name, named.key))
        for name, named in document.named("steps").items():
            self._declare(Output(name, OutputKind.STEP, name, named.key))
            if isinstance(named.value, Section):
                for output in _side_outputs(name, named.value):
                    self._declare(output)

    def _declare(self, output: Output) -> None:
        first = self.outputs.setdefault(output.name, output)
        if first is not output:
            self._diagnostics.error(
                f"the name '{output.name}' is taken by a {first.kind.value} in line {first.key.location.line}",
                output.key.location,
                hint="sources, steps, split branches, late and side outputs share their names; rename one",
            )

    def references(self, section: Section) -> tuple[Reference, ...]:
        """The names that a step or sink reads."""
        found = self._references.get(id(section))
        if found is None:
            found = self._references[id(section)] = tuple(_references(section))
        return found

    def is_needed(self, source: Named) -> bool:
        """Whether a source is the document's own, or something reads it."""
        if not self._is_shared(source.key):
            return True
        readers = (*self._steps.values(), *self._sinks.values())
        return any(r.text == source.key.text for section in readers for r in self.references(section))

    def _is_shared(self, key: YamlScalar) -> bool:
        return self._shared is not None and key.source is self._shared.source

    def _known_names(self) -> list[str]:
        return list(dict.fromkeys((*self.outputs, *(() if self._shared is None else self._shared.sources))))

    def check_references(self) -> None:
        """Report names that nobody produces."""
        for sections_ in (self._steps, self._sinks):
            for section in sections_.values():
                for reference in self.references(section):
                    if reference.text not in self.outputs:
                        self._diagnostics.error(
                            f"there is no source or step '{reference.text}'",
                            reference.location,
                            hint=did_you_mean(reference.text, self._known_names()),
                        )

    def build_order(self) -> list[str]:
        """Steps, each after those it reads; steps on a cycle are left out, and the cycle is reported once.

        The order is that of a depth-first walk, on which the ids of operators that look alike depend: `graphlib` has another one. It
        also stops at the first cycle, where here every one is reported at the name that closes it.
        """
        order: list[str] = []
        state: dict[str, int] = {}  # 1: being visited, 2: done, 3: on a cycle
        for root in self._steps:
            path: list[str] = []
            # An explicit stack: a chain of a thousand steps must not meet Python's recursion limit.
            stack = [(root, self._inputs(root))]
            if root in state:
                continue
            state[root] = 1
            path.append(root)
            while stack:
                name, inputs = stack[-1]
                found = next(inputs, None)
                if found is None:
                    stack.pop()
                    path.pop()
                    if state[name] == 1:
                        state[name] = 2
                        order.append(name)
                    continue
                owner, reference = found
                if owner not in state:
                    state[owner] = 1
                    path.append(owner)
                    stack.append((owner, self._inputs(owner)))
                elif owner in path:
                    cycle = path[path.index(owner) :]
                    if any(state[s] != 3 for s in cycle):
                        self._diagnostics.error(
                            f"steps read each other in a circle: {' → '.join([*cycle, owner])}",
                            reference.location,
                            hint="a step's rows cannot be its own input",
                        )
                    for step in cycle:
                        state[step] = 3
        return order

    def _inputs(self, step: str) -> Iterator[tuple[str, Reference]]:
        """The steps that a step reads, with where it says so."""
        section = self._steps.get(step)
        for reference in self.references(section) if section is not None else ():
            output = self.outputs.get(reference.text)
            if output is not None and output.kind is not OutputKind.SOURCE:
                yield output.owner, reference

    def warn_unused(self) -> None:
        """Warn of sources and steps whose rows reach no sink, and of side outputs that nobody reads."""
        read: set[str] = set()
        reached: set[str] = set()
        pending = [r for section in self._sinks.values() for r in self.references(section)]
        while pending:
            reference = pending.pop()
            output = self.outputs.get(reference.text)
            read.add(reference.text)
            if output is None or output.owner in reached:
                continue
            reached.add(output.owner)
            section = self._steps.get(output.owner)
            pending += self.references(section) if section is not None else ()
        for output in self.outputs.values():
            if self._is_shared(output.key):
                continue
            if output.owner not in reached and output.kind in (OutputKind.SOURCE, OutputKind.STEP):
                self._diagnostics.warning(
                    f"no sink gets rows of the {output.kind.value} '{output.name}': it will not run",
                    output.key.location,
                    hint="add a sink for it, or remove it",
                )
            elif (
                output.owner in reached
                and output.name not in read
                and output.kind in (OutputKind.BRANCH, OutputKind.LATE, OutputKind.SIDE)
            ):
                self._diagnostics.warning(
                    f"nothing reads the {output.kind.value} '{output.name}': its rows are dropped", output.key.location
                )


def sections(entries: Mapping[str, Named]) -> dict[str, Section]:
    """The well-formed records among named values."""
    return {name: n.value for name, n in entries.items() if isinstance(n.value, Section)}


def _references(section: Section) -> Iterator[Reference]:
    scalars = [
        section.scalar("from"),
        *section.scalars("union"),
        *(n for key in SET_PARTS for n in section.scalars(key)),
    ]
    join = section.section("join")
    second = (join.scalar("with") if join is not None else None, *(second_input(section, k) for k in SECOND_INPUTS))
    for scalar in (*scalars, *second):
        if scalar is not None:
            yield Reference(scalar.text, scalar.location)
    query = section.scalar("sql")
    if query is None:
        return
    for table in tables_named(query.text):
        yield Reference(table.text, query.locate(table.span[0], table.span[1] - table.span[0]))


def second_input(section: Section, key: str) -> YamlScalar | None:
    """The name of the stream that a step's process function reads beside its rows; `key` says how."""
    part = section.section(key)
    given = part.scalar("with") if part is not None else section.scalar(key)
    return given if isinstance(given, YamlScalar) else None


def _side_outputs(owner: str, section: Section) -> Iterator[Output]:
    for name, branch in section.named("split").items():
        yield Output(name, OutputKind.BRANCH, owner, branch.key)
    for part in ("map", "flat_map", "async", "process"):
        function = section.section(part)
        for name, side in function.named("side_outputs").items() if function is not None else ():
            yield Output(name, OutputKind.SIDE, owner, side.key)
    window = section.section("window")
    late = window.scalar("late_output") if window is not None else None
    if late is not None:
        yield Output(late.text, OutputKind.LATE, owner, late)
