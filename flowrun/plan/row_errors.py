"""Rows that cannot be processed, in a plan: which nodes leave them out, and where the dead letters go.

`route_row_errors` runs once a plan is optimised. Nodes whose rows may fail get a side output of dead letters, and all that belong to one
folder, or to one sink that the pipeline declares for them, are written there by one sink, so they are committed with checkpoints like any
other rows. What a node could not leave out by itself (see `flowrun.plan.row_requirements`) is found in a Calc of its own before it.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from flowrun.core.record import record
from flowrun.core.row_errors import DEAD_LETTER_SCHEMA, DEAD_LETTER_TAG, FAIL, LetterOrigin, OnError, RowErrors
from flowrun.core.schema import Schema
from flowrun.errors import Diagnostic, Location, PipelineError, did_you_mean
from flowrun.plan import nodes
from flowrun.plan.co_process import CoProcess
from flowrun.plan.expressions import ColumnRef
from flowrun.plan.fallibility import may_fail
from flowrun.plan.joins import IntervalJoin, Join, LookupJoin, TemporalJoin, WindowJoin
from flowrun.plan.relational import GroupAggregate, OverAggregate, TableFunctionCall
from flowrun.plan.rewrites.traversal import with_inputs
from flowrun.plan.row_requirements import arguments_of, required_of
from flowrun.plan.window_inputs import original_columns, with_argument_columns

DECODING = "format.on-error"
LETTERS_PATH = "format.dead-letter.path"
LETTERS_SINK = "format.dead-letter.sink"
_SINK = "dead letters"
_DECODING_CONNECTORS = ("filesystem", "hybrid", "kafka", "socket", "upsert-kafka")
LETTERS = nodes.Scan(
    DEAD_LETTER_SCHEMA,
    nodes.NodeHints(name=_SINK),
    nodes.TableReference(_SINK, "values", {}),
    DEAD_LETTER_SCHEMA,
    tuple(ColumnRef(f.type, i, f.name) for i, f in enumerate(DEAD_LETTER_SCHEMA)),
)
"""Stands for all dead letters of a sink, in `Plan.letter_sinks`."""


@record
class Destination:
    """Where dead letters go: a folder, or a sink by its name."""

    name: str
    is_sink: bool = False

    def __str__(self) -> str:
        return f"sink '{self.name}'" if self.is_sink else self.name


def on_error_of(node: nodes.PlanNode, settings: nodes.Settings) -> OnError:
    """What becomes of the rows that a node cannot process."""
    return node.hints.on_error or settings.on_error


def row_errors_of(node: nodes.PlanNode, settings: nodes.Settings) -> RowErrors:
    """The same for its operator, with the place that dead letters name."""
    mode, origin = on_error_of(node, settings), settings.letter_origin
    if mode is OnError.FAIL:
        return FAIL
    if isinstance(node, nodes.Calc) and node.required is not None:
        return RowErrors(mode, node.required.place, origin)
    name = (node.hints.name or type(node).__name__).partition(".")[0]
    if isinstance(node, nodes.Scan):
        return RowErrors(mode, f"source '{name}'", _of_source(node, origin))
    return RowErrors(mode, f"step '{name}'", origin)


def _of_source(node: nodes.Scan, origin: LetterOrigin) -> LetterOrigin:
    return replace(origin, source=node.table.name, format=node.table.format)


def decoding_of(node: nodes.Scan, settings: nodes.Settings) -> RowErrors:
    """What becomes of records that a source cannot decode."""
    mode = OnError(str(node.table.options.get(DECODING, OnError.FAIL.value)))
    place = f"source '{node.hints.name or node.table.name}'"
    return FAIL if mode is OnError.FAIL else RowErrors(mode, place, _of_source(node, settings.letter_origin))


def is_letter_sink(sink: nodes.Sink) -> bool:
    """Whether dead letters are what a sink gets."""
    node = sink.input
    while isinstance(node, nodes.Calc | nodes.Union):
        node = node.inputs[0]
    return isinstance(node, nodes.SideOutput) and node.tag == DEAD_LETTER_TAG


def fingerprint_of(text: str) -> str:
    """The version of a pipeline in its dead letters: 16 hex digits of the SHA-256 of its text, as it is in its file.

    >>> fingerprint_of("sources: {}")
    '52de9b7dbe90c068'
    """
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def rows_may_fail(node: nodes.PlanNode) -> bool:
    """Whether a node may meet rows that it cannot process, and can leave them out; scans aside."""
    match node:
        case nodes.Calc():
            conditions = () if node.condition is None else (node.condition,)
            return node.required is not None or any(map(may_fail, (*node.projections, *conditions)))
        case nodes.Split():
            return any(may_fail(condition) for _, condition in node.branches)
        case Join() | WindowJoin() | IntervalJoin() | TemporalJoin() | LookupJoin():
            return node.condition is not None and may_fail(node.condition)
        case nodes.PythonMap() | nodes.AsyncMap() | TableFunctionCall() | nodes.Process(windows=None) | CoProcess():
            return True
    return False


def route_row_errors(plan: nodes.Plan) -> nodes.Plan:
    """The plan with dead letters, and checks where rows with NULL are left out; as it is where every failure ends the job.

    Raises:
        PipelineError: there are to be dead letters, but no folder or sink for them.
    """
    settings = plan.settings
    done: dict[int, nodes.PlanNode] = {}
    letters: dict[Destination, list[nodes.PlanNode]] = defaultdict(list)
    sinks: dict[int, nodes.Sink] = {}
    for node in nodes.walk_plan(plan):
        made = with_inputs(node, tuple(done[id(i)] for i in node.inputs))
        if isinstance(made, nodes.Scan):
            made = _decoding_as_rows(made, settings)
            for place in _letter_places(made, settings):
                letters[place].append(made)
        if isinstance(made, nodes.WindowAggregate | GroupAggregate | OverAggregate) and _arguments_may_fail(
            made, settings
        ):
            made = with_argument_columns(made)
            computed = made.inputs[0]
            computed = replace(computed, hints=replace(computed.hints, on_error=on_error_of(made, settings)))
            made = with_inputs(made, (computed,))
            _collect(computed, settings, letters)
        elif isinstance(made, nodes.SideOutput) and isinstance(made.input, nodes.WindowAggregate):
            made = original_columns(replace(made, schema=node.schema), made.input)
        if on_error_of(made, settings) is not OnError.FAIL:
            made, checks = _checked(made, settings)
            for check in checks:
                _collect(check, settings, letters)
        if rows_may_fail(made):
            _collect(made, settings, letters)
        done[id(node)] = made
        if isinstance(made, nodes.Sink):
            sinks[id(node)] = made
    kept = tuple(sinks[id(s)] for s in plan.sinks)
    if not letters and all(a is b for a, b in zip(kept, plan.sinks, strict=True)):
        return plan
    written = sorted(letters.items(), key=lambda item: (item[0].is_sink, item[0].name))
    return replace(
        plan,
        sinks=(*kept, *(_letter_sink(plan, place, failing) for place, failing in written)),
        settings=replace(
            settings, letter_origin=LetterOrigin(plan.name, fingerprint_of(plan.text) if plan.text else None)
        ),
    )


def _arguments_may_fail(node: nodes.WindowAggregate | GroupAggregate | OverAggregate, settings: nodes.Settings) -> bool:
    """Whether rows may fail in the arguments of aggregates, and are to be left out then; for users' aggregates see `row_requirements`."""
    calls = node.calls if isinstance(node, OverAggregate) else node.aggregates
    if on_error_of(node, settings) is OnError.FAIL or any(c.reference is not None for c in calls):
        return False
    return any(map(may_fail, arguments_of(calls)))


def _collect(
    node: nodes.PlanNode, settings: nodes.Settings, letters: Mapping[Destination, list[nodes.PlanNode]]
) -> None:
    if on_error_of(node, settings) is OnError.DEAD_LETTER:
        letters[_destination(node, settings)].append(node)


def _destination(node: nodes.PlanNode, settings: nodes.Settings) -> Destination:
    sink = node.hints.letters_to or settings.dead_letter_sink
    if sink is not None:
        return Destination(sink, is_sink=True)
    if settings.dead_letters is None:
        raise PipelineError(
            [
                Diagnostic(
                    f"'{node.hints.name}' puts rows aside as dead letters, but there is no folder or sink for them",
                    node.hints.location,
                    hint="set settings.dead_letters to a folder or {sink: name} (in SQL: SET 'flowrun.dead_letters' = 'folder', or "
                    "SET 'flowrun.dead_letters.sink' = 'table')",
                )
            ]
        )
    return Destination(settings.dead_letters)


def _decoding_as_rows(node: nodes.Scan, settings: nodes.Settings) -> nodes.Scan:
    """A source that says nothing about records that it cannot decode does with them as with other rows."""
    mode, options = on_error_of(node, settings), node.table.options
    if node.table.connector not in _DECODING_CONNECTORS or DECODING in options or mode is OnError.FAIL:
        return node
    if mode is OnError.DEAD_LETTER and node.table.connector == "socket":
        raise PipelineError(
            [
                Diagnostic(
                    f"source '{node.table.name}': connector {node.table.connector} cannot put records aside that it cannot decode",
                    node.hints.location,
                    hint=f"set {DECODING} of the source to skip or fail",
                )
            ]
        )
    more: dict[str, object] = {DECODING: mode.value}
    if mode is OnError.DEAD_LETTER and LETTERS_PATH not in options and LETTERS_SINK not in options:
        place = _destination(node, settings)
        more[LETTERS_SINK if place.is_sink else LETTERS_PATH] = place.name
    return replace(node, table=replace(node.table, options={**options, **more}))


def _letter_places(node: nodes.Scan, settings: nodes.Settings) -> set[Destination]:
    """Where dead letters of a source go: those of records, and those of rows."""
    places, options = set(), node.table.options
    if decoding_of(node, settings).mode is OnError.DEAD_LETTER:
        if LETTERS_SINK in options:
            places.add(Destination(str(options[LETTERS_SINK]), is_sink=True))
        elif options.get(LETTERS_PATH):
            places.add(Destination(str(options[LETTERS_PATH])))
    if on_error_of(node, settings) is OnError.DEAD_LETTER:
        places.add(_destination(node, settings))
    if len(places) > 1:
        what = "places" if any(p.is_sink for p in places) else "folders"
        raise PipelineError(
            [
                Diagnostic(
                    f"source '{node.table.name}' has two {what} for dead letters: {' and '.join(sorted(map(str, places)))}",
                    node.hints.location,
                    hint=f"leave {LETTERS_SINK if LETTERS_SINK in options else LETTERS_PATH} out, or name the same {what[:-1]}",
                )
            ]
        )
    return places


def _checked(node: nodes.PlanNode, settings: nodes.Settings) -> tuple[nodes.PlanNode, list[nodes.Calc]]:
    """(the node over inputs without the rows that it cannot process, what leaves these out)."""
    inputs, checks = list(node.inputs), []
    for number, source in enumerate(node.inputs):
        required = required_of(node, settings, number)
        if required is not None:
            inputs[number] = check = _check(node, source, required)
            checks.append(check)
    return (with_inputs(node, tuple(inputs)) if checks else node), checks


def _check(node: nodes.PlanNode, source: nodes.PlanNode, required: nodes.Required) -> nodes.Calc:
    hints = replace(
        node.hints, name=f"{node.hints.name}.required", uid=None, place=None, state_ttl_ms=(),
        parallelism=source.hints.parallelism,
    )  # fmt: skip
    columns = tuple(ColumnRef(f.type, i, f.name) for i, f in enumerate(source.schema))
    return nodes.Calc(source.schema, hints, source, columns, None, required)


def _letter_sink(plan: nodes.Plan, place: Destination, failing: list[nodes.PlanNode]) -> nodes.Sink:
    schema: Schema = DEAD_LETTER_SCHEMA
    sides: list[nodes.PlanNode] = [
        nodes.SideOutput(schema, nodes.NodeHints(name=_SINK), node, DEAD_LETTER_TAG) for node in failing
    ]
    joined = sides[0] if len(sides) == 1 else nodes.Union(schema, nodes.NodeHints(name=_SINK), tuple(sides))
    if place.is_sink:
        return _declared_sink(plan, place.name, joined, failing[0].hints.location)
    table = nodes.TableReference(_SINK, "filesystem", {"path": place.name, "sink.mode": "append"}, format="json")
    hints = nodes.NodeHints(name=_SINK, parallelism=1, place=f"dead letters in {place.name}", on_error=OnError.FAIL)
    return nodes.Sink(schema, hints, joined, table)


def letter_sink_names(plan: nodes.Plan) -> dict[str, Location | None]:
    """The sinks that a plan names for dead letters, whether there are any or not, each with the node that names it first."""
    found: dict[str, Location | None] = {}
    if plan.settings.dead_letter_sink is not None:
        found[plan.settings.dead_letter_sink] = None
    for node in nodes.walk_plan(plan):
        if node.hints.letters_to is not None:
            found.setdefault(node.hints.letters_to, node.hints.location)
        if isinstance(node, nodes.Scan) and LETTERS_SINK in node.table.options:
            found.setdefault(str(node.table.options[LETTERS_SINK]), node.hints.location)
    return found


def _declared_sink(plan: nodes.Plan, name: str, letters: nodes.PlanNode, location: Location | None) -> nodes.Sink:
    """The sink of that name over the letters. They are few: unless it says otherwise it has one subtask."""
    sink = plan.letter_sinks.get(name)
    if sink is None:
        known = list(plan.letter_sinks)
        hint = did_you_mean(name, known) or "declare it, as a sink without 'from' or a table that nothing else writes"
        raise PipelineError([Diagnostic(f"there is no sink '{name}' for dead letters", location, hint=hint)])
    alone = replace(sink.hints, parallelism=sink.hints.parallelism or 1, on_error=OnError.FAIL, letters_to=None)
    return replace(sink, hints=alone, input=_over(sink.input, letters, alone.parallelism))


def _over(node: nodes.PlanNode, letters: nodes.PlanNode, parallelism: int | None) -> nodes.PlanNode:
    """What a sink of letters reads, with the letters in the place of `LETTERS`."""
    if node is LETTERS:
        return letters
    made = with_inputs(node, tuple(_over(i, letters, parallelism) for i in node.inputs))
    return replace(made, hints=replace(made.hints, parallelism=parallelism, on_error=OnError.FAIL))
