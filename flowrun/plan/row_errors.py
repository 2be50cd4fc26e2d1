"""Rows that cannot be processed, in a plan: which nodes leave them out, and where the dead letters go.

`route_row_errors` runs once a plan is optimised. Nodes whose rows may fail get a side output of dead letters, and all that belong to one
folder are written there by one sink, so they are committed with checkpoints like any other rows. What a node could not leave out by
itself (see `flowrun.plan.row_requirements`) is found in a Calc of its own before it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from flowrun.core.row_errors import DEAD_LETTER_SCHEMA, DEAD_LETTER_TAG, FAIL, OnError, RowErrors
from flowrun.core.schema import Schema
from flowrun.errors import Diagnostic, PipelineError
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
_SINK = "dead letters"
_DECODING_CONNECTORS = ("filesystem", "hybrid", "kafka", "socket", "upsert-kafka")


def on_error_of(node: nodes.PlanNode, settings: nodes.Settings) -> OnError:
    """What becomes of the rows that a node cannot process."""
    return node.hints.on_error or settings.on_error


def row_errors_of(node: nodes.PlanNode, settings: nodes.Settings) -> RowErrors:
    """The same for its operator, with the place that dead letters name."""
    mode = on_error_of(node, settings)
    if mode is OnError.FAIL:
        return FAIL
    if isinstance(node, nodes.Calc) and node.required is not None:
        return RowErrors(mode, node.required.place)
    name = (node.hints.name or type(node).__name__).partition(".")[0]
    return RowErrors(mode, f"source '{name}'" if isinstance(node, nodes.Scan) else f"step '{name}'")


def decoding_of(node: nodes.Scan) -> RowErrors:
    """What becomes of records that a source cannot decode."""
    mode = OnError(str(node.table.options.get(DECODING, OnError.FAIL.value)))
    return FAIL if mode is OnError.FAIL else RowErrors(mode, f"source '{node.hints.name or node.table.name}'")


def is_letter_sink(sink: nodes.Sink) -> bool:
    """Whether a sink is the one of dead letters in its folder."""
    return sink.table.name == _SINK and sink.schema == DEAD_LETTER_SCHEMA


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
        PipelineError: there are to be dead letters, but no folder for them.
    """
    settings = plan.settings
    done: dict[int, nodes.PlanNode] = {}
    letters: dict[str, list[nodes.PlanNode]] = defaultdict(list)
    sinks: dict[int, nodes.Sink] = {}
    for node in nodes.walk_plan(plan):
        made = with_inputs(node, tuple(done[id(i)] for i in node.inputs))
        if isinstance(made, nodes.Scan):
            made = _decoding_as_rows(made, settings)
            for path in _letter_paths(made, settings):
                letters[path].append(made)
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
    return replace(plan, sinks=(*kept, *(_letter_sink(path, failing) for path, failing in sorted(letters.items()))))


def _arguments_may_fail(node: nodes.WindowAggregate | GroupAggregate | OverAggregate, settings: nodes.Settings) -> bool:
    """Whether rows may fail in the arguments of aggregates, and are to be left out then; for users' aggregates see `row_requirements`."""
    calls = node.calls if isinstance(node, OverAggregate) else node.aggregates
    if on_error_of(node, settings) is OnError.FAIL or any(c.reference is not None for c in calls):
        return False
    return any(map(may_fail, arguments_of(calls)))


def _collect(node: nodes.PlanNode, settings: nodes.Settings, letters: Mapping[str, list[nodes.PlanNode]]) -> None:
    if on_error_of(node, settings) is OnError.DEAD_LETTER:
        letters[_folder(node, settings)].append(node)


def _folder(node: nodes.PlanNode, settings: nodes.Settings) -> str:
    if settings.dead_letters is None:
        raise PipelineError(
            [
                Diagnostic(
                    f"'{node.hints.name}' puts rows aside as dead letters, but there is no folder for them",
                    node.hints.location,
                    hint="set settings.dead_letters (in SQL: SET 'flowrun.dead_letters' = '…') to a folder",
                )
            ]
        )
    return settings.dead_letters


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
    if mode is OnError.DEAD_LETTER:
        more[LETTERS_PATH] = options.get(LETTERS_PATH) or _folder(node, settings)
    return replace(node, table=replace(node.table, options={**options, **more}))


def _letter_paths(node: nodes.Scan, settings: nodes.Settings) -> set[str]:
    """Where dead letters of a source go: those of records, and those of rows."""
    paths = set()
    if decoding_of(node).mode is OnError.DEAD_LETTER and node.table.options.get(LETTERS_PATH):
        paths.add(str(node.table.options[LETTERS_PATH]))
    if on_error_of(node, settings) is OnError.DEAD_LETTER:
        paths.add(_folder(node, settings))
    if len(paths) > 1:
        raise PipelineError(
            [
                Diagnostic(
                    f"source '{node.table.name}' has two folders for dead letters: {' and '.join(sorted(paths))}",
                    node.hints.location,
                    hint=f"leave {LETTERS_PATH} out, or name the same folder",
                )
            ]
        )
    return paths


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


def _letter_sink(path: str, failing: list[nodes.PlanNode]) -> nodes.Sink:
    schema: Schema = DEAD_LETTER_SCHEMA
    sides: list[nodes.PlanNode] = [
        nodes.SideOutput(schema, nodes.NodeHints(name=_SINK), node, DEAD_LETTER_TAG) for node in failing
    ]
    joined = sides[0] if len(sides) == 1 else nodes.Union(schema, nodes.NodeHints(name=_SINK), tuple(sides))
    table = nodes.TableReference(_SINK, "filesystem", {"path": path, "sink.mode": "append"}, format="json")
    hints = nodes.NodeHints(name=_SINK, parallelism=1, place=f"dead letters in {path}", on_error=OnError.FAIL)
    return nodes.Sink(schema, hints, joined, table)
