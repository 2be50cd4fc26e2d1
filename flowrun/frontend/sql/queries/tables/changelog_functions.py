"""TO_CHANGELOG and FROM_CHANGELOG: Flink's functions between tables that change and rows that say which change they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from flowrun.core.elements import RowKind
from flowrun.core.schema import Field, Schema
from flowrun.core.types import STRING
from flowrun.errors import did_you_mean
from flowrun.frontend.sql.expressions.query_expressions import QueryExpressionBinder
from flowrun.frontend.sql.expressions.relations import Relation, Source, unique_names
from flowrun.frontend.sql.grammar.syntax import Descriptor, FunctionArgument, FunctionTable, TableArgument, TableSyntax
from flowrun.frontend.sql.queries.nodes import identity
from flowrun.frontend.sql.queries.tables.arguments import TableArguments, assigned, descriptor_column, partition_columns
from flowrun.frontend.sql.queries.tables.from_context import FromContext
from flowrun.frontend.sql.spans import error_at, span_of
from flowrun.plan.changelog_nodes import ChangelogNormalize, Codes, FromChangelog, ToChangelog
from flowrun.plan.expressions import Call, ColumnRef, Literal
from flowrun.plan.folding import fold_constants
from flowrun.plan.nodes import PlanNode

CHANGELOG_USAGE: Mapping[str, str] = {
    "TO_CHANGELOG": "TO_CHANGELOG(input => TABLE t [PARTITION BY key] [, op => DESCRIPTOR(op)] [, op_mapping => MAP['INSERT', 'I', …]])",
    "FROM_CHANGELOG": "FROM_CHANGELOG(input => TABLE t [PARTITION BY key] [, op => DESCRIPTOR(op)] "
    "[, op_mapping => MAP['c, r', 'INSERT', …]] [, error_handling => 'SKIP'])",
}
_PARAMETERS = {
    "TO_CHANGELOG": ("INPUT", "OP", "OP_MAPPING", "UID"),
    "FROM_CHANGELOG": ("INPUT", "OP", "OP_MAPPING", "ERROR_HANDLING", "UID"),
}
_ALIASES = {"INVALID_OP_HANDLING": "ERROR_HANDLING"}
_KINDS = {kind.name: int(kind) for kind in RowKind}


def is_changelog_function(name: str) -> bool:
    """Whether it is TO_CHANGELOG or FROM_CHANGELOG."""
    return name.upper() in _PARAMETERS


def changelog_relation(tables: FromContext, table: FunctionTable, read: Callable[[TableSyntax], Relation]) -> Relation:
    """The rows of a call, `read` giving those of its table.

    Raises:
        ExpressionError: wrong arguments; marks the place.
    """
    name = table.name.text.upper()
    arguments = assigned(table, _PARAMETERS[name], CHANGELOG_USAGE[name], required=("INPUT",), aliases=_ALIASES)
    data = arguments.tables("INPUT")
    inner = read(data.table)
    binder = tables.expressions(inner)
    if data.order:
        raise error_at(f"{name} takes no ORDER BY", data.order[0].span, "rows are taken as they come")
    items = inner.star()
    node = tables.nodes.calc(inner.node, items, data.span)
    names = [n for n, _ in items]
    keys = _positions(inner, partition_columns(name, data, binder))
    call = _Call(tables, table, arguments, binder)
    if name == "TO_CHANGELOG":
        return call.to_changelog(node, names, keys)
    return call.from_changelog(node, names, keys)


def _positions(relation: Relation, columns: Sequence[int]) -> tuple[int, ...]:
    """Places among the columns that * stands for."""
    seen = [e.index if isinstance(e, ColumnRef) else -1 for _, e in relation.star()]
    return tuple(seen.index(c) for c in columns)


class _Call:
    def __init__(
        self, tables: FromContext, table: FunctionTable, arguments: TableArguments, binder: QueryExpressionBinder
    ) -> None:
        self._nodes = tables.nodes
        self._table = table
        self._arguments = arguments
        self._binder = binder

    def to_changelog(self, node: PlanNode, names: Sequence[str], keys: tuple[int, ...]) -> Relation:
        """keys, operation, the other columns."""
        operation = self._operation()
        if operation in names:
            span = self._arguments.span("OP", self._table.span)
            raise error_at(
                f"the table has a column '{operation}' already", span, "name another: op => DESCRIPTOR(change)"
            )
        codes = self._codes(by_kind=True)
        (internal,) = unique_names([*node.schema.names, operation])[-1:]
        schema = Schema((*node.schema.fields, Field(internal, STRING, False)))
        made = ToChangelog(schema, self._nodes.hints("to-changelog", self._table.span), node, codes, keys)
        others = [i for i in range(len(names)) if i not in keys]
        return self._ordered(made, [*names, operation], [*keys, len(names), *others])

    def from_changelog(self, node: PlanNode, names: Sequence[str], keys: tuple[int, ...]) -> Relation:
        """Keys, then the other columns without the operation."""
        operation = self._operation()
        span = self._arguments.span("OP", self._table.span)
        if operation not in names:
            hint = (
                did_you_mean(operation, names) or "name the column that says which change a row is: op => DESCRIPTOR(…)"
            )
            raise error_at(f"the table has no column '{operation}'", span, hint)
        place = list(names).index(operation)
        type = node.schema.types[place]
        if not type.is_character:
            raise error_at(
                f"the operation must be a character string, '{operation}' is {type}", span, "CAST it in a view"
            )
        if place in keys:
            raise error_at(f"PARTITION BY names the column of the operation, '{operation}'", span, "leave it out there")
        codes = self._codes(by_kind=False)
        upsert = self._upserts({kind for _, kind in codes}, keys)
        schema = Schema(tuple(f for i, f in enumerate(node.schema) if i != place))
        hints = self._nodes.hints("from-changelog", self._table.span)
        made: PlanNode = FromChangelog(schema, hints, node, place, codes, self._skips(), keys, upsert)
        kept = [n for i, n in enumerate(names) if i != place]
        moved = [k - (k > place) for k in keys]
        if upsert:
            made = ChangelogNormalize(schema, self._nodes.hints("normalize", self._table.span), made, tuple(moved))
        return self._ordered(made, kept, [*moved, *(i for i in range(len(kept)) if i not in moved)])

    def _ordered(self, node: PlanNode, names: Sequence[str], order: Sequence[int]) -> Relation:
        columns = identity(node.schema)
        made = self._nodes.calc(node, [columns[i] for i in order], self._table.span)
        return Relation(made, (Source(None, tuple(names[i] for i in order), tuple(range(len(order)))),))

    def _operation(self) -> str:
        argument = self._arguments.get("OP")
        return "op" if argument is None else descriptor_column(self._table.name.text, argument).text

    def _skips(self) -> bool:
        argument = self._arguments.get("ERROR_HANDLING")
        if argument is None:
            return False
        mode = self._constant(argument)
        if not isinstance(mode, str) or mode.upper() not in ("FAIL", "SKIP"):
            raise error_at("error_handling is 'FAIL' or 'SKIP'", argument.span)
        return mode.upper() == "SKIP"

    def _codes(self, *, by_kind: bool) -> Codes:
        """The pairs of op_mapping: kinds are its keys, or its values. A key may be several, with commas between them."""
        argument = self._arguments.get("OP_MAPPING")
        if argument is None:
            return tuple(_KINDS.items())
        found: dict[int | str, tuple[str, int]] = {}
        for key, value in self._pairs(argument):
            for part in (p.strip() for p in key.split(",")):
                kind_name, code = (part, value) if by_kind else (value, part)
                kind = _KINDS.get(kind_name.strip().upper())
                if kind is None:
                    hint = did_you_mean(kind_name.upper(), _KINDS) or f"known: {', '.join(_KINDS)}"
                    raise error_at(f"'{kind_name}' in op_mapping is no change", argument.span, hint)
                once: int | str = kind if by_kind else code
                if once in found:
                    raise error_at(f"op_mapping names '{part}' twice", argument.span, "name it once")
                found[once] = (code, kind)
        return tuple(found.values())

    def _upserts(self, kinds: set[int], keys: tuple[int, ...]) -> bool:
        """Whether rows after updates come without those before them: then they count by the keys."""
        after, before = RowKind.UPDATE_AFTER in kinds, RowKind.UPDATE_BEFORE in kinds
        span = self._arguments.span("OP_MAPPING", self._table.span)
        if before and not after:
            raise error_at(
                "op_mapping has UPDATE_BEFORE but no UPDATE_AFTER", span, "map both, or UPDATE_AFTER alone by key"
            )
        if after and not before and not keys:
            raise error_at(
                "FROM_CHANGELOG with UPDATE_AFTER but no UPDATE_BEFORE needs PARTITION BY: such rows are upserts by a key",
                span,
                "write input => TABLE t PARTITION BY key, or map UPDATE_BEFORE, too",
            )
        return after and not before

    def _pairs(self, argument: FunctionArgument) -> list[tuple[str, str]]:
        usage = f"usage: {CHANGELOG_USAGE[self._table.name.text.upper()]}"
        if isinstance(argument.value, TableArgument | Descriptor):
            raise error_at("op_mapping must be a MAP of constant texts", argument.span, usage)
        bound = self._binder.bind(argument.value)
        if isinstance(bound, Call) and bound.function == "MAP":
            texts = [fold_constants(a) for a in bound.arguments]
            if all(isinstance(t, Literal) and isinstance(t.value, str) for t in texts):
                values = [t.value for t in texts if isinstance(t, Literal)]
                return list(zip(values[::2], values[1::2], strict=True))
        raise error_at("op_mapping must be a MAP of constant texts", span_of(argument.value), usage)

    def _constant(self, argument: FunctionArgument) -> object:
        if isinstance(argument.value, TableArgument | Descriptor):
            return None
        bound = fold_constants(self._binder.bind(argument.value))
        return bound.value if isinstance(bound, Literal) else None
